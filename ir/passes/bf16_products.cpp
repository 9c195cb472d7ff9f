#include "ir/passes/bf16_products.h"

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

Graph bf16_products(const Graph& graph) {
  using Values = std::vector<Value>;
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    const bool attends = node->op_name() == "attention";
    if (!attends && node->op_name() != "matmul" && node->op_name() != "conv") return {};
    if (wants_fallback(*node) || node->flag("bf16")) return {};
    const DType dtype = node->output().dtype;
    if (dtype != DType::F32 && dtype != DType::BF16) return {};
    Attrs attrs = node->attrs();
    attrs.insert_or_assign("bf16", true);
    if (dtype == DType::F32 && !attends) attrs.insert_or_assign("tf32", true);
    const Values operands = rewriter.map(node->inputs());
    return Values{rewriter.builder().call(node->op(), operands, std::move(attrs))->value()};
  });
}

}  // namespace heddle::ir
