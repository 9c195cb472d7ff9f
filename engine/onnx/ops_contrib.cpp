// Ops of the domain com.microsoft that exporters of transformers write.

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

Outputs convert_gelu(const Node& node) { return {gelu(node.tensor(0))}; }

Outputs bias_gelu(const Node& node) { return {gelu(node.tensor(0) + node.tensor(1))}; }

Outputs fast_gelu(const Node& node) {
  const Tensor x = node.tensor(0);
  return {gelu(node.has(1) ? x + node.tensor(1) : x, true)};
}

Outputs quick_gelu(const Node& node) {
  const Tensor x = node.tensor(0);
  return {x * sigmoid(x * node.number("alpha", 1.702))};
}

/// Inputs: input, skip, gamma, beta, bias.
Outputs skip_layer_normalization(const Node& node) {
  Tensor total = node.tensor(0) + node.tensor(1);
  if (node.has(4)) total = total + node.tensor(4);
  const double epsilon = node.number("epsilon", 1e-12);
  return {layer_norm(total, node.tensor(2), node.optional(3), -1, epsilon), {}, {}, total};
}

Outputs simplified_layer_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  return {rms_norm(x, node.tensor(1), node.axis(node.integer("axis", -1), x.rank()),
                   node.number("epsilon", 1e-5))};
}

/// Inputs: input, skip, gamma, bias.
Outputs skip_simplified_layer_normalization(const Node& node) {
  Tensor total = node.tensor(0) + node.tensor(1);
  if (node.has(3)) total = total + node.tensor(3);
  return {rms_norm(total, node.tensor(2), -1, node.number("epsilon", 1e-12)), {}, {}, total};
}

Outputs fused_matmul(const Node& node) {
  Tensor a = node.tensor(0);
  Tensor b = node.tensor(1);
  if (node.integer("transBatchA", 0) != 0 || node.integer("transBatchB", 0) != 0)
    node.unsupported("transBatchA and transBatchB");
  if (node.integer("transA", 0) != 0) a = transpose(a, -1, -2);
  if (node.integer("transB", 0) != 0) b = transpose(b, -1, -2);
  const double alpha = node.number("alpha", 1.0);
  const Tensor product = matmul(a, b);
  return {alpha == 1.0 ? product : product * alpha};
}

constexpr Converter kConverters[] = {
    {"BiasGelu", bias_gelu},
    {"FastGelu", fast_gelu},
    {"FusedMatMul", fused_matmul},
    {"Gelu", convert_gelu},
    {"QuickGelu", quick_gelu},
    {"SimplifiedLayerNormalization", simplified_layer_normalization},
    {"SkipLayerNormalization", skip_layer_normalization},
    {"SkipSimplifiedLayerNormalization", skip_simplified_layer_normalization},
};

}  // namespace

std::span<const Converter> contrib_converters() { return kConverters; }

}  // namespace heddle::onnx
