// Quantised tensors and arithmetic on them.

#include <algorithm>

#include "engine/onnx/converters.h"
#include "engine/onnx/window.h"

namespace heddle::onnx {

namespace {

/// Scales or zero points beside x: a vector runs along `axis`.
Tensor beside(const Node& node, const Tensor& vector, const Tensor& x, std::int64_t axis) {
  if (vector.rank() == 0) return vector;
  if (vector.rank() != 1) node.unsupported("scales of blocks");
  if (!vector.size(0).is_symbolic() && vector.size(0).value() == 1) return reshape(vector, {});
  return unsqueeze_all(vector, range_of(1, x.rank() - node.axis(axis, x.rank())));
}

/// Whether the node has a zero point `k` that is not known to be 0: that of symmetric weights is a vector of zeros. It
/// is read while tracing and cannot be updated.
bool has_zero_point(const Node& node, std::size_t k) {
  if (!node.has(k)) return false;
  const auto known = node.value(k).concrete();
  if (!known || is_floating(known->dtype()) || !known->is_row_major()) return true;
  const auto* first = static_cast<const char*>(known->data());
  const auto bytes = known->count() * static_cast<std::int64_t>(heddle::size_of(known->dtype()));
  return !std::all_of(first, first + bytes, [](char byte) { return byte == 0; });
}

/// Rounded, moved by the zero point and cut to the range of its dtype.
Tensor quantised(const Tensor& scaled, const Tensor& zero) {
  const Tensor moved = round(scaled) + cast(zero, scaled.dtype());
  const bool is_signed = zero.dtype() == i8;
  return cast(clamp(moved, is_signed ? -128.0 : 0.0, is_signed ? 127.0 : 255.0), zero.dtype());
}

Tensor zero_point(const Node& node, std::size_t k, DType otherwise) {
  const Tensor zero = node.has(k) ? node.tensor(k) : Tensor::scalar_int(otherwise, 0);
  if (zero.dtype() != u8 && zero.dtype() != i8) node.unsupported("a zero point of this dtype");
  return zero;
}

Outputs quantize_linear(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t axis = node.integer("axis", 1);
  const Tensor scale = beside(node, node.tensor(1), x, axis);
  const Tensor zero = beside(node, zero_point(node, 2, u8), x, axis);
  const Tensor real = is_floating(x.dtype()) ? x : cast(x, scale.dtype());
  return {quantised(real / scale, zero)};
}

Outputs dequantize_linear(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t axis = node.integer("axis", 1);
  const Tensor scale = beside(node, node.tensor(1), x, axis);
  Tensor wide = cast(x, i32);
  if (has_zero_point(node, 2)) wide = wide - cast(beside(node, node.tensor(2), x, axis), i32);
  return {cast(wide, scale.dtype()) * scale};
}

Outputs dynamic_quantize_linear(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor high = maximum(amax(x), 0.0);
  const Tensor low = minimum(amin(x), 0.0);
  // Nothing but zeros has no range to divide.
  const Tensor range = (high - low) / 255.0;
  const Tensor scale = where(equal(range, 0.0), 1.0, range);
  const Tensor zero = cast(clamp(round(-low / scale), 0.0, 255.0), u8);
  return {quantised(x / scale, zero), scale, zero};
}

/// x less its zero point, in i32. A vector of zero points runs along the rows of a matrix.
Tensor centred(const Node& node, std::size_t operand, std::size_t zero, bool rows) {
  const Tensor wide = cast(node.tensor(operand), i32);
  if (!has_zero_point(node, zero)) return wide;
  Tensor point = cast(node.tensor(zero), i32);
  if (point.rank() == 1 && !(point.size(0) == 1) && rows) point = unsqueeze(point, 1);
  return wide - point;
}

Outputs matmul_integer(const Node& node) {
  return {matmul(centred(node, 0, 2, true), centred(node, 1, 3, false))};
}

Outputs qlinear_matmul(const Node& node) {
  const Tensor product = matmul(centred(node, 0, 2, true), centred(node, 3, 5, false));
  const Tensor a_scale = node.tensor(1);
  Tensor rows = a_scale;
  if (a_scale.rank() == 1 && !(a_scale.size(0) == 1)) rows = unsqueeze(a_scale, 1);
  const Tensor real = cast(product, f32) * (rows * node.tensor(4));
  return {quantised(real / node.tensor(6), zero_point(node, 7, u8))};
}

/// Zero points of weights run along the output channels, the first dimension.
Tensor centred_weights(const Node& node, std::size_t operand, std::size_t zero) {
  const Tensor w = cast(node.tensor(operand), i32);
  if (!has_zero_point(node, zero)) return w;
  const Tensor point = cast(node.tensor(zero), i32);
  return w - beside(node, point, w, 0);
}

Outputs conv_integer(const Node& node) {
  return {convolve(node, centred(node, 0, 2, false), centred_weights(node, 1, 3), {})};
}

Outputs qlinear_conv(const Node& node) {
  const Tensor w = centred_weights(node, 3, 5);
  const Tensor product = convolve(node, centred(node, 0, 2, false), w, node.optional(8));
  const Tensor scale = beside(node, node.tensor(4), product, 1);
  const Tensor real = cast(product, f32) * (reshape(node.tensor(1), {}) * scale);
  return {quantised(real / reshape(node.tensor(6), {}), zero_point(node, 7, u8))};
}

constexpr Converter kConverters[] = {
    {"ConvInteger", conv_integer},
    {"DequantizeLinear", dequantize_linear},
    {"DynamicQuantizeLinear", dynamic_quantize_linear},
    {"MatMulInteger", matmul_integer},
    {"QLinearConv", qlinear_conv},
    {"QLinearMatMul", qlinear_matmul},
    {"QuantizeLinear", quantize_linear},
};

}  // namespace

std::span<const Converter> quantize_converters() { return kConverters; }

}  // namespace heddle::onnx
