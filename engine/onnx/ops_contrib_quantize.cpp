// Arithmetic on quantised tensors as ONNX Runtime writes it, in the domain com.microsoft.

#include "engine/onnx/converters.h"
#include "engine/onnx/quantised.h"

namespace heddle::onnx {

namespace {

/// The reals of operand `k`, whose scale and zero point, numbers both, follow.
Tensor reals(const Node& node, std::size_t k) {
  Tensor wide = cast(node.tensor(k), i32);
  if (node.has(k + 2)) wide = wide - reshape(cast(node.tensor(k + 2), i32), {});
  return cast(wide, f32) * reshape(node.tensor(k + 1), {});
}

/// `real` in bytes, by the scale that is operand `k` and the zero point behind it.
Outputs in_bytes(const Node& node, const Tensor& real, std::size_t k) {
  const Tensor zero = reshape(zero_point(node, k + 1, node.tensor(0).dtype()), {});
  return {quantised(real / reshape(node.tensor(k), {}), zero)};
}

Outputs qlinear_add(const Node& node) { return in_bytes(node, reals(node, 0) + reals(node, 3), 6); }
Outputs qlinear_mul(const Node& node) { return in_bytes(node, reals(node, 0) * reals(node, 3), 6); }
Outputs qlinear_sigmoid(const Node& node) { return in_bytes(node, sigmoid(reals(node, 0)), 3); }

Outputs qlinear_leaky_relu(const Node& node) {
  const Tensor x = reals(node, 0);
  constexpr double kSlope = 0.01;
  return in_bytes(node, where(less(x, 0.0), x * node.number("alpha", kSlope), x), 3);
}

Outputs qlinear_global_average_pool(const Node& node) {
  const Tensor x = reals(node, 0);
  const bool last = node.integer("channels_last", 0) != 0;
  const std::vector<std::int64_t> axes = last ? range_of(1, x.rank() - 1) : range_of(2, x.rank());
  return in_bytes(node, mean(x, axes, true), 3);
}

/// A product of integers times the scales of both sides, and a bias.
Tensor scaled(const Node& node, const Tensor& product, const Tensor& scale, std::size_t bias) {
  const Tensor real = cast(product, f32) * scale;
  return node.has(bias) ? real + node.tensor(bias) : real;
}

Outputs matmul_integer_to_float(const Node& node) {
  const Tensor product = matmul(centred(node, 0, 4, true), centred(node, 1, 5, false));
  return {scaled(node, product, node.tensor(2) * node.tensor(3), 6)};
}

Outputs dynamic_quantize_matmul(const Node& node) {
  const Quantised a = dynamically_quantised(node.tensor(0));
  const Tensor rows = cast(a.numbers, i32) - cast(a.zero, i32);
  return {scaled(node, matmul(rows, centred(node, 1, 3, false)), a.scale * node.tensor(2), 4)};
}

}  // namespace

std::span<const Converter> contrib_quantize_converters() {
  static constexpr Converter kConverters[] = {
      {"DynamicQuantizeMatMul", dynamic_quantize_matmul},
      {"MatMulIntegerToFloat", matmul_integer_to_float},
      {"QLinearAdd", qlinear_add},
      {"QLinearGlobalAveragePool", qlinear_global_average_pool},
      {"QLinearLeakyRelu", qlinear_leaky_relu},
      {"QLinearMul", qlinear_mul},
      {"QLinearSigmoid", qlinear_sigmoid},
  };
  return kConverters;
}

}  // namespace heddle::onnx
