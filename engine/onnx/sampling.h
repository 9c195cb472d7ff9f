// Weighted sums of elements of a tensor where positions between them say.
#pragma once

#include <vector>

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// One element that is read along a dimension, and how much it counts.
struct Tap {
  Tensor index;   ///< i64, inside x
  Tensor inside;  ///< bool; undefined where that is always so
  Tensor weight;  ///< undefined: 1
};

/// The two elements beside each position `at` of a dimension of `length` elements; there are none outside.
std::vector<Tap> linear_taps(const Tensor& at, const SymInt& length);

/// [N, C, points] of x [N, C, spatial...]: the sum over all combinations of taps, one list a spatial dimension, of tensors
/// that broadcast to [N, 1, points].
Tensor weighted_sum(const Tensor& x, std::vector<std::vector<Tap>> taps);

}  // namespace heddle::onnx
