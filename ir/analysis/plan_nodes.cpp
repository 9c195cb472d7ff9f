#include "ir/analysis/plan_nodes.h"

#include <algorithm>

#include "ir/op.h"

namespace heddle::ir {

namespace {

bool is_view(const Node& node) { return node.op().lowering.view != nullptr; }

/// All that `next` leads to from `start` until `stop` holds, each once.
template <typename Next, typename Stop>
std::vector<const Node*> walk(const Node* start, Next&& next, Stop&& stop) {
  std::vector<const Node*> found;
  std::vector<const Node*> open{start};
  std::unordered_set<const Node*> seen;
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (stop(node))
      found.push_back(node);
    else
      next(node, open);
  }
  return found;
}

void push_inputs(const Node* node, std::vector<const Node*>& open) {
  for (const Value& input : node->inputs())
    if (input) open.push_back(input.node);
}

}  // namespace

PlanNodes::PlanNodes(const Graph& graph, const ScheduleRecord& record)
    : record_(record), nodes_(record.steps.size()) {
  for (const NodePtr& node : graph.nodes()) {
    positions_.emplace(node.get(), positions_.size());
    for (const std::string& name : node->names()) names_.emplace(name, node.get());
    for (const Value& input : node->inputs())
      if (input) users_[input.node].push_back(node.get());
  }
  for (StepId step = 0; step < record.steps.size(); ++step) {
    const PlanKernel& kernel = record.kernels[record.steps[step].kernel];
    if (kernel.kind == PlanKernel::Kind::Copy) continue;
    for (const std::string& name : kernel.nodes) {
      const Node* node = named(name);
      if (node != nullptr && nodes_[step].insert(node).second) steps_[node].push_back(step);
    }
  }
}

const Node* PlanNodes::named(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : found->second;
}

const StepSet& PlanNodes::computing(const Node* node) const {
  static const StepSet kNowhere;
  const auto found = steps_.find(node);
  return found == steps_.end() ? kNowhere : found->second;
}

bool PlanNodes::stores(StepId step, const Node* node) const {
  return std::ranges::any_of(record_.steps[step].writes, [&](BufferId buffer) {
    return named(record_.buffers[buffer].value) == node;
  });
}

bool PlanNodes::lies_in_memory(const Node* view) const {
  return std::ranges::any_of(computing(view), [&](StepId step) {
    // The kernel may store what it computes under the name of a view of it.
    if (nodes_[step].contains(view->input(0).node)) return false;
    return stores(step, view);
  });
}

std::vector<const Node*> PlanNodes::behind(const Node* node) const {
  return walk(node, push_inputs,
              [&](const Node* at) { return !is_view(*at) || lies_in_memory(at); });
}

std::vector<const Node*> PlanNodes::evaluating(const Node* node) const {
  const auto push_users = [&](const Node* at, std::vector<const Node*>& open) {
    const auto users = users_.find(at);
    if (users != users_.end()) open.insert(open.end(), users->second.begin(), users->second.end());
  };
  return walk(node, push_users,
              [&](const Node* at) { return !is_view(*at) || lies_in_memory(at); });
}

bool PlanNodes::leads_to(const Node* first, const Node* then) const {
  const std::size_t target = positions_.at(first);
  return !walk(
              then,
              [&](const Node* at, std::vector<const Node*>& open) {
                for (const Value& input : at->inputs())
                  if (input && positions_.at(input.node) >= target) open.push_back(input.node);
              },
              [&](const Node* at) { return at == first; })
              .empty();
}

}  // namespace heddle::ir
