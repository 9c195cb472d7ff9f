// Floats of 8 and of 4 bits, as ONNX's casts make them.
#pragma once

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// `x` as `dtype`, of 8-bit floats; with 4 bits, as those of them that FLOAT4E2M1 has. By the node's attributes `saturate`, what is
/// too large becomes the largest number, not infinity or NaN, and `round_mode`, powers of two are the next one up or down.
Tensor as_float8(const Node& node, const Tensor& x, DType dtype, std::int64_t bits);

/// `x`, widened to f32 if it is of 8-bit floats, which have no arithmetic.
Tensor widened(const Tensor& x);

}  // namespace heddle::onnx
