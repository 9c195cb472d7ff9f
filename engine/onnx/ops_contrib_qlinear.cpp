// Ops of reals on quantised tensors as ONNX Runtime writes them, in the domain com.microsoft: QLinear….

#include "engine/onnx/activations.h"
#include "engine/onnx/converters.h"
#include "engine/onnx/quantised.h"
#include "engine/onnx/window.h"

namespace heddle::onnx {

namespace {

/// The reals of operand `k`, whose scale and zero point, numbers both, follow.
Tensor reals(const Node& node, std::size_t k) {
  Tensor wide = cast(node.tensor(k), i32);
  if (node.has(k + 2)) wide = wide - reshape(cast(node.tensor(k + 2), i32), {});
  return cast(wide, f32) * reshape(node.tensor(k + 1), {});
}

/// `real` in bytes, by the scale that is operand `k` and the zero point behind it.
Outputs in_bytes(const Node& node, const Tensor& real, std::size_t k, DType otherwise) {
  const Tensor zero = reshape(zero_point(node, k + 1, otherwise), {});
  return {quantised(real / reshape(node.tensor(k), {}), zero)};
}
/// The same, without a zero point in bytes of operand 0's dtype.
Outputs in_bytes(const Node& node, const Tensor& real, std::size_t k) {
  return in_bytes(node, real, k, node.value(0).dtype());
}

Outputs qlinear_add(const Node& node) { return in_bytes(node, reals(node, 0) + reals(node, 3), 6); }
Outputs qlinear_mul(const Node& node) { return in_bytes(node, reals(node, 0) * reals(node, 3), 6); }
Outputs qlinear_sigmoid(const Node& node) { return in_bytes(node, sigmoid(reals(node, 0)), 3); }

Outputs qlinear_leaky_relu(const Node& node) {
  return in_bytes(node, leaky_relu(reals(node, 0), node.number("alpha", 0.01)), 3);
}

Outputs qlinear_average_pool(const Node& node) {
  const Tensor x = reals(node, 0);
  const bool last = node.integer("channels_last", 0) != 0;
  const Tensor pooled = average_pooled(node, last ? channels_first(x) : x);
  return in_bytes(node, last ? channels_last(pooled) : pooled, 3);
}

Outputs qlinear_global_average_pool(const Node& node) {
  const Tensor x = reals(node, 0);
  const bool last = node.integer("channels_last", 0) != 0;
  const Ints axes = last ? range_of(1, x.rank() - 1) : range_of(2, x.rank());
  return in_bytes(node, mean(x, axes, true), 3);
}

Outputs qlinear_reduce_mean(const Node& node) {
  const Tensor x = reals(node, 0);
  const Ints axes = node.axes(node.integers("axes", range_of(0, x.rank())), x.rank());
  return in_bytes(node, mean(x, axes, node.integer("keepdims", 1) != 0), 3);
}

/// Until version 13 of Softmax all dimensions from the axis on are one.
Outputs qlinear_softmax(const Node& node) {
  const Tensor x = reals(node, 0);
  const bool one_axis = node.integer("opset", 0) >= 13;
  const std::int64_t axis = node.axis(node.integer("axis", one_axis ? -1 : 1), x.rank());
  if (one_axis) return in_bytes(node, softmax(x, axis), 3);
  SymInts sizes = x.shape();
  sizes.resize(static_cast<std::size_t>(axis));
  sizes.emplace_back(-1);
  return in_bytes(node, reshape(softmax(reshape(x, sizes), -1), x.shape()), 3);
}

/// Inputs: scale and zero point of y, then each tensor with its own.
Outputs qlinear_concat(const Node& node) {
  constexpr std::size_t kFirst = 2;
  if (node.input_count() < kFirst + 3 || (node.input_count() - kFirst) % 3 != 0)
    node.malformed("inputs", "three for each tensor", std::to_string(node.input_count()));
  std::vector<Tensor> parts;
  for (std::size_t k = kFirst; k < node.input_count(); k += 3) parts.push_back(reals(node, k));
  if (!node.has_attr("axis")) node.malformed("axis", "a number", "none");
  const std::int64_t axis = node.axis(node.integer("axis", 0), parts[0].rank());
  return in_bytes(node, concat(parts, axis), 0, node.value(kFirst).dtype());
}

Outputs qlinear_where(const Node& node) {
  return in_bytes(node, where(node.tensor(0), reals(node, 1), reals(node, 4)), 7,
                  node.value(1).dtype());
}

}  // namespace

std::span<const Converter> contrib_qlinear_converters() {
  static constexpr Converter kConverters[] = {
      {"QLinearAdd", qlinear_add},
      {"QLinearAveragePool", qlinear_average_pool},
      {"QLinearConcat", qlinear_concat},
      {"QLinearGlobalAveragePool", qlinear_global_average_pool},
      {"QLinearLeakyRelu", qlinear_leaky_relu},
      {"QLinearMul", qlinear_mul},
      {"QLinearReduceMean", qlinear_reduce_mean},
      {"QLinearSigmoid", qlinear_sigmoid},
      {"QLinearSoftmax", qlinear_softmax},
      {"QLinearWhere", qlinear_where},
  };
  return kConverters;
}

}  // namespace heddle::onnx
