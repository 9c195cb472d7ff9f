#include "ir/passes/permuted_products.h"

#include "ir/op.h"
#include "ir/passes/layouts.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

/// The permute on the left of a product whose rows it reorders, if that is all it does.
const Node* reordered_rows(const Node& node) {
  if (node.op_name() != "matmul" || node.input(1).meta().rank() != 2) return nullptr;
  const Node& left = *node.input(0).node;
  const bool fits = left.op_name() == "permute" && left.after().empty() && node.after().empty() &&
                    left.annotations() == node.annotations();
  if (!fits) return nullptr;
  const std::int64_t last = left.output().rank() - 1;
  const std::int64_t kept = left.ints("perm").back();
  return kept == last || kept == -1 ? &left : nullptr;
}

}  // namespace

Graph permuted_products(const Graph& graph) {
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    const Node* permute = reordered_rows(*node);
    if (permute == nullptr) return {};
    GraphBuilder& builder = rewriter.builder();
    const Values operands{rewriter.map(permute->input(0)), rewriter.map(node->input(1))};
    const Value made = builder.call(node->op(), operands, node->attrs())->value();
    return Values{builder.emit("permute", {made}, {{"perm", permute->ints("perm")}})};
  });
}

}  // namespace heddle::ir
