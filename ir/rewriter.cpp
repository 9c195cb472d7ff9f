#include <algorithm>

#include "base/check.h"
#include "ir/analysis/aliases.h"
#include "ir/analysis/unbacked.h"
#include "ir/graph.h"
#include "ir/graph_data.h"
#include "ir/op.h"

namespace heddle::ir {

Value Rewriter::map(Value old) const {
  if (!old) return old;
  const auto found = values_.find(old);
  HD_CHECK(found != values_.end(), old.name());
  return found->second;
}

std::vector<Value> Rewriter::map(std::span<const Value> old) const {
  std::vector<Value> result;
  for (const Value& value : old) {
    result.push_back(map(value));
    HD_CHECK(!value || result.back(), "dropped " + (value ? value.name() : ""));
  }
  return result;
}

std::size_t Rewriter::reinferred() const { return builder_->reinferred(); }

namespace {

/// The environment that `graph` was inferred in: what it assumes is known, and nothing else.
std::shared_ptr<ShapeEnv> environment_of(const Graph& graph) {
  auto env = std::make_shared<ShapeEnv>();
  env->assumptions.assign(graph.assumptions().begin(), graph.assumptions().end());
  env->next_unbacked_ = graph.next_unbacked_symbol();
  return env;
}

}  // namespace

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

bool Rewriter::visit_node(const NodePtr& node, Visit visit, void* state) {
  const std::size_t first = builder_->data_->nodes.size();
  const std::vector<Value> order = map_order(*node);
  builder_->context = {node->annotations(), order, node->location(), {}, {}, node->name()};
  std::optional<std::vector<Value>> replaced;
  {
    const SameNumbers numbers(*node, builder_->env());
    replaced = visit(state, *this, node);
  }
  builder_->context = {};
  if (replaced && replaced->empty()) {
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k) values_[node->value(k)] = {};
    return true;
  }
  if (replaced && (*replaced)[0].node != node.get()) {
    HD_CHECK(replaced->size() == node->outputs().size(), node->name());
    builder_->take_names(*node, *replaced, first);
    for (std::uint32_t k = 0; k < replaced->size(); ++k) values_[node->value(k)] = (*replaced)[k];
    return true;
  }
  const Node* kept = builder_->with_inputs(node, map(node->inputs()), order);
  for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
    values_[node->value(k)] = kept->value(k);
  return false;
}

Graph Rewriter::run(const Graph& graph, Visit visit, void* state) {
  GraphBuilder builder(graph.name(), environment_of(graph));
  builder.adopt(graph);
  Rewriter rewriter;
  rewriter.builder_ = &builder;
  rewriter.values_.reserve(graph.nodes().size());
  bool changed = false;
  for (const NodePtr& node : graph.nodes()) {
    if (node->is_argument()) {
      builder.share(node);
      rewriter.values_[node->value()] = node->value();
    } else {
      changed |= rewriter.visit_node(node, visit, state);
    }
  }
  if (!changed) return graph;
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    builder.output(rewriter.map(graph.outputs()[k]), graph.output_label(k));
  for (std::size_t k = 0; k < graph.write_backs().size(); ++k) {
    const Graph::WriteBack& write = graph.write_backs()[k];
    if (std::ranges::find(rewriter.dropped_, k) == rewriter.dropped_.end())
      builder.write_back(rewriter.map(write.target), rewriter.map(write.source));
  }
  return builder.finish();
}

}  // namespace heddle::ir
