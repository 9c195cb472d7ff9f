#include "ir/passes/tf32_products.h"

#include <algorithm>
#include <string_view>

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

Graph tf32_products(const Graph& graph) {
  using Values = std::vector<Value>;
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    static constexpr std::string_view kProducts[] = {"matmul", "grouped_matmul", "conv"};
    if (std::ranges::find(kProducts, node->op_name()) == std::end(kProducts)) return {};
    if (wants_fallback(*node) || node->output().dtype != DType::F32 || node->flag("tf32"))
      return {};
    Attrs attrs = node->attrs();
    attrs.insert_or_assign("tf32", true);
    const Values operands = rewriter.map(node->inputs());
    return Values{rewriter.builder().call(node->op(), operands, std::move(attrs))->value()};
  });
}

}  // namespace heddle::ir
