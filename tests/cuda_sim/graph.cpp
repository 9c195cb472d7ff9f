#include "tests/cuda_sim/graph.h"

#include <algorithm>

namespace heddle::sim {

std::size_t Graph::place_of(const void* handle) const {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const auto& node) { return node.get() == handle; });
  return static_cast<std::size_t>(found - nodes.begin());
}

bool Graph::is_chain() const {
  for (std::size_t k = 0; k < nodes.size(); ++k)
    if (nodes[k]->after != (k == 0 ? std::vector<std::size_t>{} : std::vector{k - 1})) return false;
  return true;
}

Graphs& Graphs::instance() {
  static Graphs graphs;
  return graphs;
}

Graph* Graphs::make() {
  auto graph = std::make_unique<Graph>();
  Graph* made = graph.get();
  graphs_.emplace(made, std::move(graph));
  return made;
}

Graph* Graphs::find(void* handle) {
  const auto found = graphs_.find(handle);
  return found == graphs_.end() ? nullptr : found->second.get();
}

bool Graphs::destroy(void* handle) { return graphs_.erase(handle) != 0; }

GraphExec* Graphs::instantiate(const Graph& graph) {
  auto exec = std::make_unique<GraphExec>();
  for (const auto& node : graph.nodes) {
    exec->places.emplace(node.get(), exec->nodes.size());
    exec->nodes.push_back(*node);
    exec->slots.push_back(Machine::instance().take_slot());
  }
  GraphExec* made = exec.get();
  execs_.emplace(made, std::move(exec));
  return made;
}

GraphExec* Graphs::find_exec(void* handle) {
  const auto found = execs_.find(handle);
  return found == execs_.end() ? nullptr : found->second.get();
}

bool Graphs::destroy_exec(void* handle) {
  GraphExec* exec = find_exec(handle);
  if (exec == nullptr) return false;
  Machine::instance().finish(exec->latest);
  for (const std::uint32_t slot : exec->slots) Machine::instance().give_slot_back(slot);
  execs_.erase(handle);
  return true;
}

void Graphs::reset() {
  graphs_.clear();
  for (const auto& [handle, exec] : execs_)
    for (const std::uint32_t slot : exec->slots) Machine::instance().give_slot_back(slot);
  execs_.clear();
}

}  // namespace heddle::sim
