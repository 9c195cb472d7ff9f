#include "ir/analysis/collectives.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/custom_op.h"
#include "ir/op.h"

namespace heddle::ir {

bool is_collective(const Node& node) {
  return node.op().custom != nullptr && node.op().custom->collective;
}

namespace {

/// Who begins a collective, and who waits for it.
struct Calls {
  std::vector<const Node*> starts;
  std::unordered_map<const Node*, std::vector<const Node*>> waits;  ///< by start
};

Calls calls_of(const Graph& graph) {
  Calls calls;
  std::unordered_set<const Node*> starts;
  for (const NodePtr& node : graph.nodes()) {
    if (!is_collective(*node)) continue;
    bool is_wait = false;
    for (const Value& input : node->inputs()) {
      if (!input || !starts.contains(input.node)) continue;
      auto& list = calls.waits[input.node];
      if (list.empty() || list.back() != node.get()) list.push_back(node.get());
      is_wait = true;
    }
    if (is_wait) continue;
    starts.insert(node.get());
    calls.starts.push_back(node.get());
  }
  return calls;
}

}  // namespace

std::vector<Collective> collectives_of(const Graph& graph) {
  const Calls calls = calls_of(graph);
  std::vector<Collective> found;
  for (const Node* start : calls.starts)
    if (const auto list = calls.waits.find(start);
        list != calls.waits.end() && list->second.size() == 1)
      found.push_back({start, list->second.front()});
  return found;
}

std::vector<const Node*> begun_collectives(const Graph& graph) { return calls_of(graph).starts; }

}  // namespace heddle::ir
