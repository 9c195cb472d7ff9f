// Products of quantised tensors as ONNX Runtime writes it, in the domain com.microsoft.

#include "engine/onnx/converters.h"
#include "engine/onnx/quantised.h"

namespace heddle::onnx {

namespace {

/// A product of integers times the scales of both sides, and a bias.
Tensor scaled(const Node& node, const Tensor& product, const Tensor& scale, std::size_t bias) {
  const Tensor real = cast(product, f32) * scale;
  return node.has(bias) ? real + node.tensor(bias) : real;
}

Outputs matmul_integer_to_float(const Node& node) {
  const Tensor product = matmul(centred(node, 0, 4, true), centred(node, 1, 5, false));
  return {scaled(node, product, node.tensor(2) * node.tensor(3), 6)};
}

/// Inputs: a, its scale and zero point, the same of b, c, and the scale and zero point of y; without them y is real. c counts
/// in products of both scales.
Outputs quantised_gemm(const Node& node) {
  Tensor a = centred(node, 0, 2, false);
  Tensor b = node.tensor(3);
  if (node.integer("transA", 0) != 0) a = transpose(a, 0, 1);
  if (node.integer("transB", 0) != 0) b = transpose(b, 0, 1);
  Tensor product = matmul(a, cast(b, i32) - cast(node.tensor(5), i32));
  if (node.has(6)) product = product + node.tensor(6);
  const Tensor scale = reshape(node.tensor(1), {}) * node.tensor(4) * node.number("alpha", 1);
  const Tensor real = cast(product, f32) * scale;
  if (!node.has(7)) return {real};
  return {quantised(real / reshape(node.tensor(7), {}), zero_point(node, 8, u8))};
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
      {"QGemm", quantised_gemm},
  };
  return kConverters;
}

}  // namespace heddle::onnx
