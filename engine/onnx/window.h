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
/// The pool that an AveragePool-like node describes, of another operand.
Tensor average_pooled(const Node& node, const Tensor& x);
/// The same of MaxPool, without positions.
Tensor max_pooled(const Node& node, const Tensor& x);
/// Channels moved from the last dimension behind the batch, and back.
Tensor channels_first(const Tensor& x);
Tensor channels_last(const Tensor& x);

}  // namespace heddle::onnx
