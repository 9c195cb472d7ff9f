#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "ir/analysis/aliases.h"
#include "ir/analysis/unbacked.h"
#include "ir/environment.h"
#include "ir/graph.h"
#include "ir/graph_data.h"
#include "ir/op.h"

namespace heddle::ir {

struct Rewriter::Walk {
  explicit Walk(const Graph& graph) : old(graph) {}

  const Graph& old;
  std::size_t at = 0;  ///< of the nodes, the one that is visited
  /// Nothing as long as no node was replaced and no visitor asked for it.
  std::optional<GraphBuilder> builder;
  bool changed = false;
  /// Of values that are no longer themselves.
  std::unordered_map<Value, Value, Value::Hash> changes;
  std::vector<std::size_t> dropped;  ///< write-backs
  // Of the node that is visited, once the builder was asked for.
  bool ready = false;
  std::size_t first = 0;  ///< the next node's number in the new graph
  std::optional<SameNumbers> numbers;
};

Value Rewriter::map(Value old) const {
  if (!old || walk_.changes.empty()) return old;
  const auto found = walk_.changes.find(old);
  return found == walk_.changes.end() ? old : found->second;
}

std::vector<Value> Rewriter::map(std::span<const Value> old) const {
  std::vector<Value> result;
  result.reserve(old.size());
  for (const Value& value : old) {
    result.push_back(map(value));
    HD_CHECK(!value || result.back(), "dropped " + (value ? value.name() : ""));
  }
  return result;
}

std::size_t Rewriter::reinferred() const { return walk_.builder ? walk_.builder->reinferred() : 0; }

void Rewriter::drop_write_back(std::size_t k) { walk_.dropped.push_back(k); }

std::vector<Value> Rewriter::map_order(const Node& node) const {
  std::vector<Value> result;
  for (const Value& first : node.after()) {
    Value now = map(first);
    // After a view that is gone means after what it looks at.
    for (Value seen = viewed(first); seen && !now; seen = viewed(seen)) now = map(seen);
    if (now && std::ranges::find(result, now) == result.end()) result.push_back(now);
  }
  return result;
}

GraphBuilder& Rewriter::builder() {
  Walk& walk = walk_;
  const auto nodes = walk.old.nodes();
  if (!walk.builder) {
    walk.builder.emplace(walk.old.name(), environment_of(walk.old));
    walk.builder->adopt(walk.old);
    walk.builder->data_->nodes.assign(nodes.begin(),
                                      nodes.begin() + static_cast<std::ptrdiff_t>(walk.at));
  }
  if (!walk.ready && walk.at < nodes.size()) {
    const Node& node = *nodes[walk.at];
    walk.ready = true;
    walk.first = walk.builder->data_->nodes.size();
    walk.builder->context = {node.annotations(), map_order(node), node.location(), {}, {},
                             node.name()};
    walk.numbers.emplace(node, walk.builder->env());
  }
  return *walk.builder;
}

/// Nodes that are as they were have their names noted with the old graph.
void Rewriter::keep(const NodePtr& node) {
  if (!walk_.builder) return;
  const auto is_itself = [&](const Value& value) { return map(value) == value; };
  if (node->after().empty() && std::ranges::all_of(node->inputs(), is_itself))
    return walk_.builder->data_->nodes.push_back(node);
  const std::vector<Value> inputs = map(node->inputs());
  const std::vector<Value> order = map_order(*node);
  if (std::ranges::equal(inputs, node->inputs()) && std::ranges::equal(order, node->after()))
    return walk_.builder->data_->nodes.push_back(node);
  const Node* kept = walk_.builder->with_inputs(node, inputs, order);
  for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
    walk_.changes[node->value(k)] = kept->value(k);
}

void Rewriter::visit_node(const NodePtr& node, Visit visit, void* state) {
  const std::optional<std::vector<Value>> replaced = visit(state, *this, node);
  const bool is_dropped = replaced && replaced->empty();
  const bool is_replaced = replaced && !is_dropped && (*replaced)[0].node != node.get();
  if (is_dropped || is_replaced) {
    GraphBuilder& made = builder();
    walk_.changed = true;
    HD_CHECK(is_dropped || replaced->size() == node->outputs().size(), node->name());
    if (is_replaced) made.take_names(*node, *replaced, walk_.first);
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      walk_.changes[node->value(k)] = is_dropped ? Value() : (*replaced)[k];
  }
  if (walk_.ready) {
    walk_.numbers.reset();
    walk_.builder->context = {};
    walk_.ready = false;
  }
  if (!is_dropped && !is_replaced) keep(node);
}

Graph Rewriter::run(const Graph& graph, Visit visit, void* state) {
  Walk walk(graph);
  Rewriter rewriter(walk);
  for (const NodePtr& node : graph.nodes()) {
    if (node->is_argument())
      rewriter.keep(node);
    else
      rewriter.visit_node(node, visit, state);
    ++walk.at;
  }
  if (!walk.changed) return graph;
  GraphBuilder& builder = *walk.builder;
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    builder.output(rewriter.map(graph.outputs()[k]), graph.output_label(k));
  for (std::size_t k = 0; k < graph.write_backs().size(); ++k) {
    const Graph::WriteBack& write = graph.write_backs()[k];
    if (std::ranges::find(walk.dropped, k) == walk.dropped.end())
      builder.write_back(rewriter.map(write.target), rewriter.map(write.source));
  }
  return builder.finish();
}

}  // namespace heddle::ir
