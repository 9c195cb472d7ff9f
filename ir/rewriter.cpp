#include "base/check.h"
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
  for (const Value& value : old) result.push_back(map(value));
  return result;
}

std::size_t Rewriter::reinferred() const { return builder_->reinferred(); }

namespace {

std::shared_ptr<ShapeEnv> env_of(const Graph& graph) {
  auto env = std::make_shared<ShapeEnv>();
  env->assumptions.assign(graph.assumptions().begin(), graph.assumptions().end());
  env->next_unbacked_ = graph.next_unbacked_symbol();
  return env;
}

bool is_input(const Node& node) { return node.op_name() == "input" || node.op_name() == "param"; }

}  // namespace

void Rewriter::finish(const Graph& graph) {
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    builder_->output(map(graph.outputs()[k]), graph.output_label(k));
  for (const Graph::WriteBack& write : graph.write_backs())
    builder_->write_back(map(write.target), map(write.source));
}

Graph Rewriter::run(const Graph& graph, Visit visit, void* state) {
  GraphBuilder builder(graph.name(), env_of(graph));
  Rewriter rewriter;
  rewriter.builder_ = &builder;
  bool changed = false;
  builder.adopt(graph);
  for (const NodePtr& node : graph.nodes()) {
    if (is_input(*node)) {
      builder.share(node);
      rewriter.values_[node->value()] = node->value();
      continue;
    }
    builder.context = {node->annotations(), rewriter.map(node->after()), node->location(), {}};
    std::optional<std::vector<Value>> replaced = visit(state, rewriter, node);
    builder.context = {};
    if (replaced) {
      HD_CHECK(replaced->size() == node->outputs().size(), node->name());
      changed = true;
      for (std::uint32_t k = 0; k < replaced->size(); ++k)
        rewriter.values_[node->value(k)] = (*replaced)[k];
      continue;
    }
    const std::vector<Value> inputs = rewriter.map(node->inputs());
    const std::vector<Value> after = rewriter.map(node->after());
    const Node* kept = builder.with_inputs(node, inputs, after);
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      rewriter.values_[node->value(k)] = kept->value(k);
  }
  if (!changed) return graph;
  rewriter.finish(graph);
  return builder.finish();
}

Graph Rewriter::filter(const Graph& graph, bool (*keep)(void* state, const Node&), void* state) {
  GraphBuilder builder(graph.name(), env_of(graph));
  Rewriter rewriter;
  rewriter.builder_ = &builder;
  bool changed = false;
  builder.adopt(graph);
  for (const NodePtr& node : graph.nodes()) {
    if (!keep(state, *node)) {
      changed = true;
      continue;
    }
    const Node* kept = node.get();
    if (is_input(*node)) {
      builder.share(node);
    } else {
      std::vector<Value> after;
      for (const Value& first : node->after())
        if (rewriter.values_.contains(first)) after.push_back(rewriter.map(first));
      kept = builder.with_inputs(node, rewriter.map(node->inputs()), after);
    }
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      rewriter.values_[node->value(k)] = kept->value(k);
  }
  if (!changed) return graph;
  rewriter.finish(graph);
  return builder.finish();
}

}  // namespace heddle::ir
