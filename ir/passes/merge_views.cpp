#include "ir/passes/merge_views.h"

#include "ir/op.h"

namespace heddle::ir {

namespace {

Attrs merged_permute(const Node& first, const Node& second) {
  std::vector<std::int64_t> perm;
  const auto& inner = first.ints("perm");
  for (const std::int64_t axis : second.ints("perm"))
    perm.push_back(inner[static_cast<std::size_t>(
        axis < 0 ? axis + static_cast<std::int64_t>(inner.size()) : axis)]);
  return {{"perm", std::move(perm)}};
}

/// Element k of the second slice is element start2 + k*stride2 of the first, so start1 + that * stride1 of
/// the operand. The limit is one past the last element taken, or the start when none is.
Attrs merged_slice(const Node& first, const Node& second) {
  Dims start, limit, stride;
  for (std::size_t d = 0; d < second.output().sizes.size(); ++d) {
    const SymExpr& step = first.symints("stride")[d];
    const SymExpr& count = second.output().sizes[d];
    start.push_back(first.symints("start")[d] + second.symints("start")[d] * step);
    stride.push_back(second.symints("stride")[d] * step);
    const SymExpr last = start.back() + (count - 1) * stride.back() + 1;
    limit.push_back(count.is_constant() && !count.is_constant(0) ? last : max(start.back(), last));
    if (count.is_constant(0)) limit.back() = start.back();
  }
  return {{"start", std::move(start)}, {"limit", std::move(limit)}, {"stride", std::move(stride)}};
}

bool same_kind_of_view(const Node& first, const Node& second) {
  const std::string_view op = second.op_name();
  return op == first.op_name() && first.annotations() == second.annotations() &&
         (op == "reshape" || op == "permute" || op == "expand" || op == "slice");
}

}  // namespace

Graph merge_views(const Graph& graph) {
  return rewrite(
      graph, [](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->inputs().empty() || !node->input(0)) return {};
        const Value operand = rewriter.map(node->input(0));
        if (!same_kind_of_view(*operand.node, *node)) return {};
        const Node& first = *operand.node;
        Attrs attrs = node->attrs();
        if (node->op_name() == "permute") attrs = merged_permute(first, *node);
        if (node->op_name() == "slice") attrs = merged_slice(first, *node);
        rewriter.builder().context.name = node->name();
        const Node* merged =
            rewriter.builder().call(node->op(), {&first.inputs()[0], 1}, std::move(attrs));
        return std::vector<Value>{merged->value()};
      });
}

}  // namespace heddle::ir
