// Several ops in one, as ONNX Runtime's optimisers write them, and small ones of the domain com.microsoft.

#include "engine/onnx/activations.h"
#include "engine/onnx/converters.h"
#include "engine/onnx/window.h"

namespace heddle::onnx {

namespace {

/// What the attribute activation says of `x`, with parameters in the order of their attributes; x without it.
Tensor with_activation(const Node& node, const Tensor& x, const std::vector<double>& parameters) {
  const std::string name = node.string("activation", "");
  if (name.empty()) return x;
  if (name == "Clip") {
    if (parameters.size() != 2)
      node.malformed("activation_params", "two numbers", std::to_string(parameters.size()));
    return clamp(x, parameters[0], parameters[1]);
  }
  Activation activation = activation_called(node, name);
  if (!parameters.empty()) activation.alpha = parameters[0];
  if (parameters.size() > 1) activation.beta = parameters[1];
  return activation(x);
}

Outputs fused_conv(const Node& node) {
  Tensor y = convolve(node, node.tensor(0), node.tensor(1), node.optional(2));
  if (node.has(3)) y = y + node.tensor(3);
  return {with_activation(node, y, node.numbers("activation_params"))};
}

Outputs fused_gemm(const Node& node) {
  std::vector<double> parameters;
  for (const char* name : {"activation_alpha", "activation_beta"})
    if (node.has_attr(name)) parameters.push_back(node.number(name, 0));
  return {with_activation(node, convert_gemm(node)[0].tensor(), parameters)};
}

/// The first dimension moved before the last one, if the batch lies behind it, and those two exchanged.
Tensor turned(const Tensor& x, bool batch_behind, bool transposed) {
  Tensor rows = x;
  if (batch_behind) {
    Ints order = range_of(1, x.rank() - 1);
    order.push_back(0);
    order.push_back(x.rank() - 1);
    rows = permute(x, order);
  }
  return transposed ? transpose(rows, -1, -2) : rows;
}

Outputs fused_matmul(const Node& node) {
  const auto flag = [&](const char* name) { return node.integer(name, 0) != 0; };
  const Tensor a = turned(node.tensor(0), flag("transBatchA"), flag("transA"));
  const Tensor b = turned(node.tensor(1), flag("transBatchB"), flag("transB"));
  const double alpha = node.number("alpha", 1.0);
  const Tensor product = matmul(a, b);
  return {alpha == 1.0 ? product : product * alpha};
}

Outputs gemm_fast_gelu(const Node& node) {
  const Tensor product = matmul(node.tensor(0), node.tensor(1));
  return {gelu(node.has(2) ? product + node.tensor(2) : product, true)};
}

/// A bias, and what else there is, added; nothing is dropped without training.
Outputs bias_add(const Node& node) {
  const Tensor sum = node.tensor(0) + node.tensor(1);
  return {node.has(2) ? sum + node.tensor(2) : sum};
}

Outputs bias_softmax(const Node& node) {
  const Tensor x = node.tensor(0) + node.tensor(1);
  const std::int64_t axis = node.axis(node.integer("axis", 1), x.rank());
  if (axis == x.rank() - 1) return {softmax(x, axis)};
  SymInts sizes = x.shape();
  sizes.resize(static_cast<std::size_t>(axis));
  sizes.emplace_back(-1);
  return {reshape(softmax(reshape(x, sizes), -1), x.shape())};
}

Outputs bias_split_gelu(const Node& node) {
  const Tensor x = node.tensor(0) + node.tensor(1);
  const SymInt half = x.size(-1) / 2;
  return {slice(x, -1, 0, half) * gelu(slice(x, -1, half, half * 2))};
}

/// Groups of channels standardised, scaled and shifted by channel.
Tensor group_normalised(const Node& node, const Tensor& x) {
  const std::int64_t groups = node.integer("groups", 0);
  if (groups < 1) node.malformed("groups", "1 or more", std::to_string(groups));
  const bool last = node.integer("channels_last", 1) != 0;
  const SymInt channels = x.size(last ? -1 : 1);
  const SymInt each = channels / groups;
  // [batch, before, groups, each, behind]: the channels lie before or behind the positions.
  const Tensor split = last ? reshape(x, {x.size(0), -1, groups, each, 1})
                            : reshape(x, {x.size(0), 1, groups, each, -1});
  const Tensor wide = x.dtype() == f32 ? split : cast(split, f32);
  const Ints axes{1, 3, 4};
  const Tensor centred = wide - mean(wide, axes, true);
  const Tensor normal = centred * rsqrt(variance(wide, axes, true) + node.number("epsilon", 1e-5));
  const auto by_channel = [&](std::size_t k) {
    return reshape(cast(node.tensor(k), f32), {groups, each, 1});
  };
  const Tensor y = reshape(normal * by_channel(1) + by_channel(2), x.shape());
  const Tensor shown = node.integer("activation", 0) != 0 ? silu(y) : y;
  return x.dtype() == f32 ? shown : cast(shown, x.dtype());
}

Outputs group_norm(const Node& node) { return {group_normalised(node, node.tensor(0))}; }

/// Inputs: x, gamma, beta, skip, bias.
Outputs skip_group_norm(const Node& node) {
  const Tensor x = node.tensor(0);
  Tensor skip = node.tensor(3);
  if (skip.rank() == 2)
    skip = node.integer("channels_last", 1) != 0 ? unsqueeze_all(skip, {1, 2})
                                                 : unsqueeze_all(skip, {2, 3});
  Tensor total = x + skip;
  if (node.has(4)) {
    const bool last = node.integer("channels_last", 1) != 0;
    total = total + (last ? node.tensor(4) : unsqueeze_all(node.tensor(4), {1, 2}));
  }
  return {group_normalised(node, total), total};
}

Outputs nhwc_max_pool(const Node& node) {
  return {channels_last(max_pooled(node, channels_first(node.tensor(0))))};
}

// Small ops.

Outputs complex_product(const Node& node, double sign) {
  const Tensor a = node.tensor(0);
  const Tensor b = node.tensor(1);
  const auto part = [](const Tensor& x, std::int64_t k) { return slice(x, -1, k, k + 1); };
  const Tensor real = part(a, 0) * part(b, 0) - part(a, 1) * part(b, 1) * sign;
  const Tensor imaginary = part(a, 0) * part(b, 1) * sign + part(a, 1) * part(b, 0);
  return {concat({real, imaginary}, -1)};
}
Outputs complex_mul(const Node& node) { return complex_product(node, 1); }
Outputs complex_mul_conj(const Node& node) { return complex_product(node, -1); }

Outputs distances(const Node& node) {
  const Tensor apart = unsqueeze(node.tensor(0), 1) - unsqueeze(node.tensor(1), 0);
  const Tensor squares = sum(apart * apart, {2});
  const std::string metric = node.string("metric", "sqeuclidean");
  if (metric == "sqeuclidean") return {squares};
  if (metric != "euclidean") node.unsupported("metric " + metric);
  return {sqrt(squares)};
}

Outputs unfold_tensor(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t axis = node.axis(node.integer("dim", -1), x.rank());
  return {unfold(x, axis, node.integer("size", 0), node.integer("step", 1))};
}

Outputs expand_dims(const Node& node) {
  const Tensor x = node.tensor(0);
  return {unsqueeze(x, node.axis(node.known_number(1, "axis"), x.rank() + 1))};
}

Outputs is_all_finite(const Node& node) {
  const bool nan = node.integer("isinf_only", 0) == 0;
  const bool infinite = node.integer("isnan_only", 0) == 0;
  Tensor result;
  for (const Tensor& x : node.tensors()) {
    Tensor bad = nan ? one("is_nan", {x}) : one("is_inf", {x});
    if (nan && infinite) bad = logical_or(bad, one("is_inf", {x}));
    const Tensor good = logical_not(any(bad));
    result = result.defined() ? logical_and(result, good) : good;
  }
  return {result};
}

Outputs scaled_silu(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor z =
      node.has(1) ? x * reshape(cast(node.tensor(1), x.dtype()), {}) : x * node.number("alpha", 1);
  return {z * sigmoid(z)};
}

/// Rows of as many numbers as there are scales, normalised, scaled, and gated.
Outputs gated_rms_norm(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor scale = cast(node.tensor(1), f32);
  const Tensor rows = reshape(cast(x, f32), {-1, scale.size(0)});
  const Tensor normal = reshape(rms_norm(rows, scale, -1, node.number("epsilon", 1e-5)), x.shape());
  const Tensor gate = cast(node.tensor(2), f32);
  const std::string kind = node.string("activation", "silu");
  if (kind != "silu" && kind != "swish" && kind != "sigmoid")
    node.malformed("activation", "silu, swish or sigmoid", kind);
  const Tensor y = normal * (kind == "sigmoid" ? sigmoid(gate) : silu(gate));
  return {cast(y, x.dtype())};
}

Outputs gated_add(const Node& node) {
  if (node.has(3)) node.unsupported("gate_weight");
  return {node.tensor(0) + node.tensor(1) * node.tensor(2)};
}

/// Inputs: a, dt_bias, decay_scale, b.
Outputs linear_attention_gate(const Node& node) {
  const Tensor a = node.tensor(0);
  const Tensor decay = node.tensor(2) * softplus(cast(a, f32) + node.tensor(1));
  Outputs outputs{cast(decay, a.dtype())};
  if (node.has(3)) outputs.emplace_back(sigmoid(node.tensor(3)));
  return outputs;
}

Outputs torch_embedding(const Node& node) { return {gather(node.tensor(0), node.tensor(1), 0)}; }

}  // namespace

std::span<const Converter> contrib_fused_converters() {
  static constexpr Converter kConverters[] = {
      {"BiasAdd", bias_add},
      {"BiasDropout", bias_add},
      {"BiasSoftmax", bias_softmax},
      {"BiasSplitGelu", bias_split_gelu},
      {"CDist", distances},
      {"ComplexMul", complex_mul},
      {"ComplexMulConj", complex_mul_conj},
      {"ExpandDims", expand_dims},
      {"FusedConv", fused_conv},
      {"FusedGemm", fused_gemm},
      {"FusedMatMul", fused_matmul},
      {"GatedAdd", gated_add},
      {"GatedRMSNorm", gated_rms_norm},
      {"GemmFastGelu", gemm_fast_gelu},
      {"GroupNorm", group_norm},
      {"Inverse", convert_inverse},
      {"IsAllFinite", is_all_finite},
      {"LinearAttentionGate", linear_attention_gate},
      {"NhwcMaxPool", nhwc_max_pool},
      {"ScaledSiLU", scaled_silu},
      {"SkipGroupNorm", skip_group_norm},
      {"TorchEmbedding", torch_embedding},
      {"TransposeMatMul", fused_matmul},
      {"UnfoldTensor", unfold_tensor},
  };
  return kConverters;
}

}  // namespace heddle::onnx
