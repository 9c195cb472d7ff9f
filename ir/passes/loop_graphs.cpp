#include "ir/passes/loop_graphs.h"

#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/environment.h"

namespace heddle::ir {

bool is_loop(const Node& node) {
  return node.op_name() == "scan" || node.op_name() == "while_loop";
}

std::size_t first_captured(const Node& loop) {
  const std::int64_t scanned = loop.op_name() == "scan" ? loop.integer("scanned") : 0;
  return static_cast<std::size_t>(loop.integer("carried") + scanned);
}

std::unordered_set<const Node*> live_nodes(const Graph& graph,
                                           const std::unordered_set<const Node*>& known) {
  std::unordered_set<const Node*> live;
  std::vector<const Node*> open;
  const auto reach = [&](const Value& value) {
    if (value && live.insert(value.node).second) open.push_back(value.node);
  };
  for (const Value& output : graph.outputs()) reach(output);
  for (const NodePtr& node : graph.nodes())
    if (!node->is_argument() && !is_pure(*node)) reach(node->value());
  const SizeMakers makers(graph);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (known.contains(node)) continue;
    for (const Value& input : node->inputs()) reach(input);
    for (const Value& first : node->after()) reach(first);
    for (const Node* maker : makers.used_by(*node)) reach(maker->value());
  }
  return live;
}

Graph with_inputs(const Graph& graph, const std::function<void(GraphBuilder&)>& change,
                  const std::unordered_set<const Node*>* kept) {
  GraphBuilder builder(graph.name(), environment_of(graph));
  builder.adopt(graph);
  for (const NodePtr& node : graph.nodes())
    if (kept == nullptr || node->is_argument() || kept->contains(node.get())) builder.share(node);
  change(builder);
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    builder.output(graph.outputs()[k], graph.output_label(k));
  return builder.finish();
}

}  // namespace heddle::ir
