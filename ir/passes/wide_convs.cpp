#include "ir/passes/wide_convs.h"

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

Graph wide_convs(const Graph& graph) {
  using Values = std::vector<Value>;
  return rewrite(graph, [](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    if (node->op_name() != "conv" && node->op_name() != "conv_transpose") return {};
    const DType dtype = node->output().dtype;
    if ((dtype != DType::F16 && dtype != DType::BF16) || wants_fallback(*node)) return {};
    GraphBuilder& builder = rewriter.builder();
    Values operands = rewriter.map(node->inputs());
    for (Value& operand : operands)
      if (operand) operand = builder.emit("convert", {operand}, {{"dtype", DType::F32}});
    const Value wide = builder.call(node->op(), operands, node->attrs())->value();
    return Values{builder.emit("convert", {wide}, {{"dtype", dtype}})};
  });
}

}  // namespace heddle::ir
