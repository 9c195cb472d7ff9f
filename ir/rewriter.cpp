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

Graph Rewriter::run(const Graph& graph, Visit visit, void* state) {
  auto env = std::make_shared<ShapeEnv>();
  env->assumptions.assign(graph.assumptions().begin(), graph.assumptions().end());
  env->next_unbacked_ = graph.next_unbacked_symbol();
  GraphBuilder builder(graph.name(), env);
  Rewriter rewriter;
  rewriter.builder_ = &builder;
  bool changed = false;
  builder.adopt(graph);
  for (const NodePtr& node : graph.nodes()) {
    if (node->op_name() == "input" || node->op_name() == "param") {
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
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    builder.output(rewriter.map(graph.outputs()[k]), graph.output_label(k));
  for (const Graph::WriteBack& write : graph.write_backs())
    builder.write_back(rewriter.map(write.target), rewriter.map(write.source));
  return builder.finish();
}

}  // namespace heddle::ir
