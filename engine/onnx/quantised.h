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

}  // namespace heddle::onnx
