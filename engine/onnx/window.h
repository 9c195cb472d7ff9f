// The sliding window of convolutions and pools, as their attributes describe it.
#pragma once

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// One entry a spatial dimension each.
struct WindowAttrs {
  Ints kernel;
  Ints strides;
  Ints dilations;
  Ints low;   ///< padding before
  Ints high;  ///< padding after
};

/// Strides, dilations and pads of `node` over `x`, auto_pad put to numbers. @throws ModelError.
WindowAttrs window_attrs(const Node& node, const Tensor& x, Ints kernel);
/// The attribute kernel_shape, or the trailing sizes of the weights.
Ints kernel_of(const Node& node, const Tensor& w);
/// The convolution that a Conv-like node describes, of other operands.
Tensor convolve(const Node& node, const Tensor& x, const Tensor& w, const Tensor& bias);

}  // namespace heddle::onnx
