#include "ir/passes/control_deps.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/closest.h"
#include "heddle/error.h"
#include "ir/analysis/dependencies.h"
#include "ir/environment.h"

namespace heddle::ir {

namespace {

struct Named {
  Value value;
  std::uint32_t position = 0;
};

class NodesByName {
 public:
  explicit NodesByName(const Graph& graph) {
    for (std::uint32_t k = 0; k < graph.nodes().size(); ++k) {
      const Node& node = *graph.nodes()[k];
      for (std::uint32_t j = 0; j < node.outputs().size(); ++j)
        nodes_.emplace(node.names()[j], Named{node.value(j), k});
    }
  }

  const Named& at(std::string_view name) const {
    const auto found = nodes_.find(name.starts_with('%') ? name.substr(1) : name);
    if (found != nodes_.end()) return found->second;
    std::vector<std::string_view> known;
    for (const auto& [other, node] : nodes_) known.push_back(other);
    const std::string_view near = base::closest(name, known);
    throw ArgumentError({.what = "control_deps: name of a node",
                         .where = {},
                         .expected = near.empty()
                                         ? "a node of the graph"
                                         : "a node of the graph, such as " + std::string(near),
                         .got = std::string(name)});
  }

 private:
  std::unordered_map<std::string_view, Named> nodes_;
};

using Edges = std::unordered_map<std::uint32_t, std::vector<Named>>;

bool waits_for(const Node& node, const Node* first) {
  return std::ranges::any_of(node.after(), [&](const Value& v) { return v.node == first; });
}

/// What is new in `deps`, by position of the node that waits.
Edges new_edges(const Graph& graph, const ControlDeps& deps) {
  const NodesByName names(graph);
  Edges edges;
  for (const auto& [name, firsts] : deps) {
    const Named& node = names.at(name);
    if (!firsts.empty() && node.value.node->is_argument())
      throw ArgumentError({.what = "control_deps: what waits",
                           .where = {},
                           .expected = "a node that computes something",
                           .got = "input %" + node.value.node->name()});
    for (const std::string& other : firsts) {
      const Named& first = names.at(other);
      if (first.position == node.position)
        throw CycleError({.what = "order",
                          .where = {},
                          .expected = "no cycle",
                          .got = node.value.name() + " before " + node.value.name()});
      std::vector<Named>& list = edges[node.position];
      const bool known =
          waits_for(*node.value.node, first.value.node) ||
          std::ranges::any_of(list, [&](const Named& n) { return n.position == first.position; });
      if (!known) list.push_back(first);
    }
  }
  std::erase_if(edges, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [position, list] : edges) std::ranges::sort(list, {}, &Named::position);
  return edges;
}

/// The graph with its nodes in `order`, those at the keys of `edges` after what is listed there.
Graph rebuild(const Graph& graph, const Edges& edges, std::span<const std::uint32_t> order) {
  GraphBuilder builder(graph.name(), environment_of(graph));
  builder.adopt(graph);
  std::unordered_map<const Node*, const Node*> made;
  const auto map = [&](Value value) {
    return value ? Value{made.at(value.node), value.index} : value;
  };
  for (const std::uint32_t position : order) {
    const NodePtr& node = graph.nodes()[position];
    std::vector<Value> inputs;
    std::vector<Value> after;
    for (const Value& input : node->inputs()) inputs.push_back(map(input));
    for (const Value& first : node->after()) after.push_back(map(first));
    const auto added = edges.find(position);
    if (added != edges.end())
      for (const Named& first : added->second) after.push_back(map(first.value));
    made[node.get()] = builder.with_inputs(node, inputs, after);
  }
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    builder.output(map(graph.outputs()[k]), graph.output_label(k));
  for (const Graph::WriteBack& write : graph.write_backs())
    builder.write_back(map(write.target), map(write.source));
  return builder.finish();
}

}  // namespace

Graph control_deps(const Graph& graph, const ControlDeps& deps) {
  const Edges edges = new_edges(graph, deps);
  if (edges.empty()) return graph;
  Dependencies all = dependencies_of(graph);
  for (const auto& [position, firsts] : edges)
    for (const Named& first : firsts) all.add(first.position, position, true);
  return rebuild(graph, edges, topological_order(graph, all));
}

}  // namespace heddle::ir
