#include <algorithm>
#include <map>
#include <set>

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

/// Copies a graph with the bodies of its regions in place of their calls.
class Inliner {
 public:
  explicit Inliner(const Graph& graph) : graph_(graph), builder_(graph.name(), environment()) {}

  Graph run() {
    builder_.adopt(graph_);
    for (const NodePtr& node : graph_.nodes()) {
      if (node->op_name() == "region") {
        inline_call(*node);
      } else {
        copy(node);
      }
    }
    for (std::size_t k = 0; k < graph_.outputs().size(); ++k)
      builder_.output(values_.at(graph_.outputs()[k]), graph_.output_label(k));
    for (const Graph::WriteBack& write : graph_.write_backs())
      builder_.write_back(values_.at(write.target), values_.at(write.source));
    return builder_.finish();
  }

 private:
  std::shared_ptr<ShapeEnv> environment() const {
    auto env = std::make_shared<ShapeEnv>();
    const auto take = [&](const Graph& graph) {
      for (const Assumption& assumption : graph.assumptions()) {
        const auto same = [&](const Assumption& a) { return a.predicate == assumption.predicate; };
        if (std::ranges::none_of(env->assumptions, same)) env->assumptions.push_back(assumption);
      }
      env->next_unbacked_ = std::max(env->next_unbacked_, graph.next_unbacked_symbol());
    };
    take(graph_);
    for (const NodePtr& node : graph_.nodes())
      if (node->op_name() == "region") take(node->graph("body"));
    return env;
  }

  std::vector<Value> order_of(const Node& node) const {
    std::vector<Value> result;
    for (const Value& first : node.after()) {
      for (const Value& value : orders_.at(first.node))
        if (std::ranges::find(result, value) == result.end()) result.push_back(value);
    }
    return result;
  }

  std::vector<Value> mapped(std::span<const Value> values) const {
    std::vector<Value> result;
    for (const Value& value : values) result.push_back(value ? values_.at(value) : value);
    return result;
  }

  void copy(const NodePtr& node) {
    const Node* made = builder_.with_inputs(node, mapped(node->inputs()), order_of(*node));
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      values_[node->value(k)] = made->value(k);
    orders_[node.get()] = {made->value()};
  }

  void inline_call(const Node& call) {
    const Graph& body = call.graph("body");
    std::map<Value, Value> inside;
    for (std::size_t k = 0; k < body.inputs().size(); ++k)
      inside[body.inputs()[k]] = values_.at(call.input(k));
    const std::vector<Value> before = order_of(call);
    std::set<const Node*> made_here;
    std::vector<Value> last;  // nodes of the body that no other one reads
    for (const NodePtr& node : body.nodes()) {
      if (node->op_name() == "input") continue;
      std::vector<Value> inputs;
      for (const Value& input : node->inputs()) inputs.push_back(input ? inside.at(input) : input);
      // What reads a node of the body comes after it anyway.
      const bool first_of_body =
          node->op_name() != "const" && std::ranges::none_of(inputs, [&](const Value& v) {
            return v && made_here.contains(v.node);
          });
      std::vector<Value> order = first_of_body ? before : std::vector<Value>();
      for (const Value& first : node->after()) order.push_back(inside.at(first));
      Annotations annotations = node->annotations();
      annotations.insert_or_assign(std::string(kRegionAnnotation), Annotation{call.name()});
      const Node* made = builder_.transplant(node, inputs, order, std::move(annotations));
      for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
        inside[node->value(k)] = made->value(k);
      if (node->op_name() == "const") continue;
      made_here.insert(made);
      std::erase_if(last, [&](const Value& value) {
        return std::ranges::any_of(inputs, [&](const Value& v) { return v.node == value.node; });
      });
      last.push_back(made->value());
    }
    for (std::uint32_t k = 0; k < call.outputs().size(); ++k)
      values_[call.value(k)] = inside.at(body.outputs()[k]);
    orders_[&call] = last.empty() ? before : std::move(last);
  }

  const Graph& graph_;
  GraphBuilder builder_;
  std::map<Value, Value> values_;
  std::map<const Node*, std::vector<Value>> orders_;  ///< what `after` an old node means now
};

}  // namespace

Graph inline_regions(const Graph& graph) {
  const bool any = std::ranges::any_of(
      graph.nodes(), [](const NodePtr& node) { return node->op_name() == "region"; });
  return any ? Inliner(graph).run() : graph;
}

}  // namespace heddle::ir
