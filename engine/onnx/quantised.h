// Numbers of a byte that stand for reals.
#pragma once

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// The reals are (numbers - zero) * scale.
struct Quantised {
  Tensor numbers;
  Tensor scale;
  Tensor zero;
};

/// `x` as u8, from 0 and its least element to 0 and its largest: what DynamicQuantizeLinear gives.
Quantised dynamically_quantised(const Tensor& x);

/// Rounded, moved by the zero point and cut to the range of its dtype, or of so many of its bits.
Tensor quantised(const Tensor& scaled, const Tensor& zero, std::int64_t bits = 0);
/// The node's zero point `k`, or 0 of a dtype.
Tensor zero_point(const Node& node, std::size_t k, DType otherwise);
/// An operand less its zero point, in i32. A vector of zero points runs along the rows of a matrix, if `rows`, or its columns.
Tensor centred(const Node& node, std::size_t operand, std::size_t zero, bool rows);

}  // namespace heddle::onnx
