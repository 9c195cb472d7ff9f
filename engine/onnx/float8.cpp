#include "engine/onnx/float8.h"

#include <limits>

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

/// To 0, 0.5, 1, 1.5, 2, 3, 4 or 6, ties to even codes; NaN becomes -0.
Tensor rounded_to_e2m1(const Tensor& x) {
  constexpr double kLargest = 6;
  const Tensor bounded = clamp(x, -kLargest, kLargest);
  const Tensor size = abs(bounded);
  const Tensor few = where(less(size, 4.0), round(bounded), round(bounded * 0.5) * 2.0);
  const Tensor rounded = where(less(size, 2.0), round(bounded * 2.0) * 0.5, few);
  return where(is_nan(x), -0.0, rounded);
}

/// To a power of two: the next one of a magnitude, by the node's `round_mode`.
Tensor power_of_two(const Node& node, const Tensor& x) {
  constexpr double kLeast = 0x1p-127;
  constexpr double kLargest = 0x1p127;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string mode = node.string("round_mode", "up");
  if (mode != "up" && mode != "down" && mode != "nearest")
    node.malformed("round_mode", "up, down or nearest", mode);
  const Tensor size = maximum(abs(x), kLeast);
  const Tensor bounded = node.integer("saturate", 1) != 0 ? minimum(size, kLargest) : size;
  const Tensor finite = where(equal(size, kInfinity), x, bounded);
  if (mode == "nearest") return cast(finite, f8e8m0fnu);
  const Tensor near = cast(cast(finite, f8e8m0fnu), f32);
  const Tensor moved = mode == "up" ? where(less(near, finite), near * 2.0, near)
                                    : where(greater(near, finite), near * 0.5, near);
  return cast(moved, f8e8m0fnu);
}

}  // namespace

Tensor widened(const Tensor& x) { return is_float8(x.dtype()) ? cast(x, f32) : x; }

Tensor as_float8(const Node& node, const Tensor& x, DType dtype, std::int64_t bits) {
  const Tensor real = cast(x, f32);
  if (bits != 0) return cast(rounded_to_e2m1(real), dtype);
  if (dtype == f8e8m0fnu) return power_of_two(node, real);
  if (node.integer("saturate", 1) == 0) return cast(real, dtype);
  const double largest = dtype == f8e4m3fn ? 448 : dtype == f8e4m3fnuz ? 240 : 57344;
  return cast(clamp(real, -largest, largest), dtype);
}

}  // namespace heddle::onnx
