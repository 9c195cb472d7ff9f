#include "ir/passes/channels_last.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/passes/layouts.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

bool is_float_conv(const Node& node) {
  return node.op_name() == "conv" && !node.flag("channels_last") &&
         node.output().dtype == DType::F32;
}

/// [N, C, in...] to [N, in..., C].
Perm to_the_end(std::int64_t rank) {
  Perm perm{0};
  for (std::int64_t axis = 2; axis < rank; ++axis) perm.push_back(axis);
  perm.push_back(1);
  return perm;
}

/// Whether each element of the result is in one window: they lie side by side.
bool is_side_by_side(const Node& node) {
  if (node.op_name() != "conv_transpose" || node.output().dtype != DType::F32) return false;
  const auto all = [&](const char* name, std::int64_t value) {
    return std::ranges::all_of(node.ints(name), [&](std::int64_t v) { return v == value; });
  };
  const Dims& weights = node.input(1).meta().sizes;
  const std::vector<std::int64_t>& strides = node.ints("strides");
  for (std::size_t d = 0; d < strides.size(); ++d)
    if (!weights[d + 2].is_constant(strides[d])) return false;
  return node.integer("groups") == 1 && all("pads_low", 0) && all("pads_high", 0) &&
         all("dilations", 1) && all("output_padding", 0);
}

/// The taps of windows side by side as channels, brought where they belong.
class SideBySide {
 public:
  SideBySide(GraphBuilder& builder, const Node& node)
      : builder_(builder), node_(node), spatial_(node.ints("strides").size()) {}

  Value run(Value x, std::span<const Value> operands) {
    const Dims& weights = node_.input(1).meta().sizes;
    taps_.assign(weights.begin() + 2, weights.end());
    channels_ = weights[1];
    const SymExpr all = base::product(taps_);
    Value made = builder_.emit("matmul", {x, filters(operands[1], weights[0], all)});
    if (operands.size() > 2 && operands[2])
      made = builder_.emit("add", {made, repeated(operands[2], all)});
    return spread(made);
  }

 private:
  Value reshaped(Value value, Dims sizes) {
    return builder_.emit("reshape", {value}, {{"sizes", std::move(sizes)}});
  }

  /// [c, m, taps...] as [c, taps * m].
  Value filters(Value weights, const SymExpr& depth, const SymExpr& all) {
    Perm perm{0};
    for (std::size_t d = 0; d < spatial_; ++d) perm.push_back(static_cast<std::int64_t>(d) + 2);
    perm.push_back(1);
    const Value turned = builder_.emit("permute", {weights}, {{"perm", perm}});
    return reshaped(turned, {depth, all * channels_});
  }

  Value repeated(Value bias, const SymExpr& all) {
    const Value row = reshaped(bias, {SymExpr(1), channels_});
    const Value rows = builder_.emit("expand", {row}, {{"sizes", Dims{all, channels_}}});
    return reshaped(rows, {all * channels_});
  }

  /// [n, in..., taps * m] as [n, in_0 * tap_0, …, m].
  Value spread(Value made) {
    const Dims& sizes = made.meta().sizes;
    Dims apart(sizes.begin(), sizes.end() - 1);
    apart.insert(apart.end(), taps_.begin(), taps_.end());
    apart.push_back(channels_);
    Perm perm{0};
    Dims joined{sizes[0]};
    for (std::size_t d = 0; d < spatial_; ++d) {
      perm.push_back(static_cast<std::int64_t>(d) + 1);
      perm.push_back(static_cast<std::int64_t>(d + spatial_) + 1);
      joined.push_back(sizes[d + 1] * taps_[d]);
    }
    perm.push_back(static_cast<std::int64_t>(2 * spatial_) + 1);
    joined.push_back(channels_);
    const Value turned =
        builder_.emit("permute", {reshaped(made, std::move(apart))}, {{"perm", perm}});
    return reshaped(turned, std::move(joined));
  }

  GraphBuilder& builder_;
  const Node& node_;
  std::size_t spatial_;
  Dims taps_;
  SymExpr channels_;
};

}  // namespace

Graph channels_last(const Graph& graph) {
  std::map<Value, Value> permuted;  // by value of the new graph
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    const bool transposed = is_side_by_side(*node);
    if (!transposed && !is_float_conv(*node)) return {};
    const Perm perm = to_the_end(node->output().rank());
    Values operands = rewriter.map(node->inputs());
    Value& x = permuted[operands[0]];
    if (!x) x = rewriter.builder().emit("permute", {operands[0]}, {{"perm", perm}});
    if (transposed) {
      const Value made = SideBySide(rewriter.builder(), *node).run(x, operands);
      return Values{rewriter.builder().emit("permute", {made}, {{"perm", inverse(perm)}})};
    }
    operands[0] = x;
    Attrs attrs = node->attrs();
    attrs["channels_last"] = true;
    const Value made = rewriter.builder().call(node->op(), operands, std::move(attrs))->value();
    return Values{rewriter.builder().emit("permute", {made}, {{"perm", inverse(perm)}})};
  });
}

}  // namespace heddle::ir
