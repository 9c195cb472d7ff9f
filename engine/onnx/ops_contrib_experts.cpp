// Mixtures of experts of the domain com.microsoft: rows are brought in the order of the experts that they pick.

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

/// Rows by the experts that they picked: choice n is of row n / k.
struct Routes {
  Tensor order;    ///< i64[rows * k]: choices, those of the first expert first
  Tensor experts;  ///< i64[rows * k]: the expert of each, in that order
  Tensor ends;     ///< i64[experts]
  Tensor shares;   ///< [rows, k]
  std::int64_t k = 1;
};

Routes routes_of(const Node& node, const Tensor& logits) {
  Routes routes;
  routes.k = node.integer("k", 1);
  const SymInt experts = logits.size(1);
  const auto [shares, picked] = topk(softmax(logits, -1), routes.k, -1);
  const bool normalises = node.integer("normalize_routing_weights", 0) != 0;
  routes.shares = normalises ? shares / sum(shares, {1}, true) : shares;
  const auto [sorted, order] = sort(reshape(picked, {-1}), 0);
  routes.order = order;
  routes.experts = sorted;
  const Tensor before = less_equal(unsqueeze(sorted, 0), iota({experts, 1}, 0));
  routes.ends = sum(cast(before, i64), {1});
  return routes;
}

/// Rows times the matrices [experts, out, in] that input k holds, and the biases behind them.
Tensor projected(const Node& node, const Tensor& rows, std::size_t k, const Routes& routes) {
  const Tensor product = grouped_matmul(rows, transpose(node.tensor(k), 1, 2), routes.ends);
  return node.has(k + 1) ? product + gather(node.tensor(k + 1), routes.experts, 0) : product;
}

Tensor swiglu_of(const Node& node, Tensor gate, Tensor line) {
  if (node.integer("swiglu_limit_after_activation", 0) != 0)
    node.unsupported("swiglu_limit_after_activation");
  if (node.has_attr("swiglu_limit")) {
    const double limit = node.number("swiglu_limit", 0);
    gate = minimum(gate, limit);
    line = clamp(line, -limit, limit);
  }
  const Tensor open = sigmoid(gate * node.number("activation_alpha", 1));
  return gate * open * (line + node.number("activation_beta", 0));
}

constexpr std::size_t kFirst = 2, kSecond = 4, kThird = 6;

/// What the first matrices give, under the activation, times what the third ones do, if any.
Tensor activated_rows(const Node& node, const Tensor& rows, const Routes& routes) {
  const Tensor first = projected(node, rows, kFirst, routes);
  const std::string kind = node.string("activation_type", "relu");
  if (kind == "swiglu") {
    const std::int64_t fusion = node.integer("swiglu_fusion", 0);
    if (fusion == 0) return swiglu_of(node, first, projected(node, rows, kThird, routes));
    const SymInt width = first.size(1);
    const SymInt half = width / 2;
    if (fusion == 2) return swiglu_of(node, slice(first, 1, 0, half), slice(first, 1, half, width));
    return swiglu_of(node, slice(first, 1, 0, width, 2), slice(first, 1, 1, width, 2));
  }
  Tensor active = first;
  if (kind == "relu")
    active = relu(first);
  else if (kind == "gelu")
    active = gelu(first, true);  // as ONNX Runtime does
  else if (kind == "silu")
    active = silu(first);
  else if (kind != "identity")
    node.unsupported("activation_type " + kind);
  return node.has(kThird) ? active * projected(node, rows, kThird, routes) : active;
}

/// Inputs: rows, logits of the experts, then matrices and biases three times.
Outputs mixture_of_experts(const Node& node) {
  if (node.integer("use_sparse_mixer", 0) != 0) node.unsupported("use_sparse_mixer");
  const Tensor x = node.tensor(0);
  const SymInt width = x.size(-1);
  const Tensor rows = x.rank() == 2 ? x : reshape(x, {-1, width});
  const Routes routes = routes_of(node, node.tensor(1));
  const Tensor given = gather(rows, routes.order / routes.k, 0);
  const Tensor made = projected(node, activated_rows(node, given, routes), kSecond, routes);
  const Tensor back = sort(routes.order, 0).second;  // where each choice went
  const Tensor of_choices = reshape(gather(made, back, 0), {rows.size(0), routes.k, -1});
  const Tensor y = sum(of_choices * unsqueeze(routes.shares, 2), {1});
  return {x.rank() == 2 ? y : reshape(y, x.shape())};
}

}  // namespace

std::span<const Converter> contrib_expert_converters() {
  static constexpr Converter kConverters[] = {
      {"MoE", mixture_of_experts},
  };
  return kConverters;
}

}  // namespace heddle::onnx
