#include "ir/passes/dce.h"

#include <unordered_set>

#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

using NodeSet = std::unordered_set<const Node*>;

NodeSet needed_nodes(const Graph& graph) {
  NodeSet needed;
  std::vector<const Node*> open;
  const auto need = [&](const Value& value) {
    if (value && needed.insert(value.node).second) open.push_back(value.node);
  };
  for (const Value& output : graph.outputs()) need(output);
  for (const Graph::WriteBack& write : graph.write_backs()) {
    need(write.source);
    need(write.target);
  }
  for (const Value& input : graph.inputs()) need(input);
  for (const NodePtr& node : graph.nodes())
    if (!is_pure(*node)) need(node->value());
  const SizeMakers makers(graph);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const Value& input : node->inputs()) need(input);
    for (const Node* maker : makers.used_by(*node)) need(maker->value());
  }
  return needed;
}

}  // namespace

Graph dce(const Graph& graph) {
  const NodeSet needed = needed_nodes(graph);
  if (needed.size() == graph.nodes().size()) return graph;
  return Rewriter::keep_only(graph, [&](const Node& node) { return needed.contains(&node); });
}

}  // namespace heddle::ir
