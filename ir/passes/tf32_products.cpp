#include "ir/passes/tf32_products.h"

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

Graph tf32_products(const Graph& graph) {
  using Values = std::vector<Value>;
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    if (node->op_name() != "matmul" || wants_fallback(*node)) return {};
    if (node->output().dtype != DType::F32 || node->flag("tf32")) return {};
    const Value a = rewriter.map(node->input(0));
    const Value b = rewriter.map(node->input(1));
    return Values{rewriter.builder().emit("matmul", {a, b}, {{"tf32", true}})};
  });
}

}  // namespace heddle::ir
