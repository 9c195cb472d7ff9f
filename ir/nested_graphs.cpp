#include "ir/nested_graphs.h"

#include <fmt/format.h>

#include "ir/op.h"

namespace heddle::ir {

std::string graph_name(std::string_view name) {
  return std::string(name.starts_with('@') ? name.substr(1) : name);
}

NestedGraphs::NestedGraphs(const Graph& entry) {
  taken_[graph_name(entry.name())] = nullptr;
  add_callees(entry);
  for (std::size_t k = 0; k < all_.size(); ++k) add_callees(*all_[k].graph);
}

/// Attributes in the order in which they print.
void NestedGraphs::add_callees(const Graph& graph) {
  for (const NodePtr& node : graph.nodes())
    for (const AttrSpec& spec : node->op().attrs)
      if (const auto* ref = std::get_if<GraphRef>(&node->attr(spec.name))) add(*ref);
}

void NestedGraphs::add(const GraphRef& ref) {
  const std::string wanted = graph_name(ref.name);
  const auto [known, unknown] = names_.try_emplace(std::pair(ref.graph.get(), wanted));
  if (!unknown) return;
  std::string name = wanted;
  for (int k = 1;; ++k) {
    const auto [taken, fresh] = taken_.emplace(name, ref.graph.get());
    if (fresh) all_.push_back({name, ref.graph});
    if (taken->second == ref.graph.get()) break;
    name = fmt::format("{}_{}", wanted, k);
  }
  known->second = std::move(name);
}

std::string NestedGraphs::name_of(const Graph* graph, std::string_view name) const {
  const auto known = names_.find(std::pair(graph, graph_name(name)));
  return known == names_.end() ? graph_name(name) : known->second;
}

}  // namespace heddle::ir
