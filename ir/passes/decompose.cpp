#include "ir/passes/decompose.h"

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

bool only_decomposes(const Node& node) {
  const Lowering& lowering = node.op().lowering;
  if (wants_fallback(node)) return false;
  return lowering.decompose != nullptr && lowering.view == nullptr && lowering.element == nullptr &&
         !lowering.reduce && lowering.nest.empty() && lowering.library.empty();
}

Graph decompose_once(const Graph& graph) {
  return rewrite(graph,
                 [](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
                   if (!only_decomposes(*node)) return {};
                   DecomposeContext context(rewriter.builder(), node, rewriter.map(node->inputs()));
                   std::vector<Value> values = node->op().lowering.decompose(context);
                   if (values.empty()) return {};
                   return values;
                 });
}

}  // namespace

Graph decompose(const Graph& graph) {
  Graph before = graph;
  for (;;) {
    Graph after = decompose_once(before);
    if (after.identical(before)) return after;
    before = std::move(after);
  }
}

}  // namespace heddle::ir
