#include "ir/passes/order_sizes.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/passes/control_deps.h"

namespace heddle::ir {

namespace {

using NodeSet = std::set<const Node*>;

/// The makers that each node waits for by data or by an order edge of its own.
class Awaited {
 public:
  NodeSet& add(const Node& node, const NodeSet& makers) {
    NodeSet& set = sets_[&node];
    const auto inherit = [&](const Value& value) {
      if (!value) return;
      if (makers.contains(value.node)) set.insert(value.node);
      const NodeSet& behind = sets_[value.node];
      set.insert(behind.begin(), behind.end());
    };
    for (const Value& input : node.inputs()) inherit(input);
    for (const Value& first : node.after())
      if (makers.contains(first.node)) set.insert(first.node);
    return set;
  }

 private:
  std::unordered_map<const Node*, NodeSet> sets_;
};

Graph order_own_sizes(const Graph& graph) {
  const SizeMakers makers(graph);
  if (makers.empty()) return graph;
  NodeSet all;
  for (const NodePtr& node : graph.nodes())
    if (!unbacked_defined(*node).empty()) all.insert(node.get());
  Awaited awaited;
  ControlDeps missing;
  for (const NodePtr& node : graph.nodes()) {
    NodeSet& known = awaited.add(*node, all);
    for (const Node* maker : makers.used_by(*node))
      if (known.insert(maker).second) missing[node->name()].insert(maker->name());
  }
  return control_deps(graph, missing);
}

}  // namespace

Graph order_sizes(const Graph& graph) {
  return change_regions(order_own_sizes(graph), order_own_sizes);
}

}  // namespace heddle::ir
