#include <algorithm>
#include <map>
#include <set>

#include "ir/analysis/aliases.h"
#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

Annotations in_region(const Node& node, const std::string& region) {
  Annotations annotations = node.annotations();
  annotations.insert_or_assign(std::string(kRegionAnnotation), Annotation{region});
  return annotations;
}

/// Graphs whose nodes say which region they are of, by the graph before.
using Marked = std::map<const Graph*, std::shared_ptr<const Graph>>;

/// `graph`, and where `whole` is false only what is nested in it, with all nodes in `region`.
Graph marked(const Graph& graph, const std::string& region, bool whole, Marked& known) {
  return rewrite(
      graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
        GraphBuilder& builder = rewriter.builder();
        const auto inputs = rewriter.map(node->inputs());
        const std::vector<Value> after = builder.context.after;
        const bool has_graphs = node->op_name() != "region" && !regions_of(*node).empty();
        if (!has_graphs && (!whole || node->op_name() == "const")) return {};
        const Node* made = nullptr;
        if (has_graphs) {
          Attrs attrs = node->attrs();
          for (auto& [name, attr] : attrs) {
            auto* ref = std::get_if<GraphRef>(&attr);
            if (ref == nullptr) continue;
            auto& nested = known[ref->graph.get()];
            if (nested == nullptr)
              nested = std::make_shared<const Graph>(marked(*ref->graph, region, true, known));
            ref->graph = nested;
          }
          if (whole) builder.context.annotations = in_region(*node, region);
          builder.context.names.assign(node->names().begin(), node->names().end());
          made = builder.call(node->op(), inputs, std::move(attrs));
        } else {
          made = builder.transplant(node, inputs, after, in_region(*node, region));
        }
        std::vector<Value> values;
        for (std::uint32_t k = 0; k < made->outputs().size(); ++k) values.push_back(made->value(k));
        return values;
      });
}

/// Copies a graph with the bodies of its regions in place of their calls.
class Inliner {
 public:
  explicit Inliner(const Graph& graph)
      : graph_(graph), makers_(graph), bodies_(bodies()), builder_(graph.name(), environment()) {}

  Graph run() {
    find_needed();
    builder_.adopt(graph_);
    for (const NodePtr& node : graph_.nodes()) {
      if (node->op_name() == "region")
        inline_call(*node);
      else if (is_needed(*node, needed_) || node->is_argument())
        copy(node);
    }
    for (std::size_t k = 0; k < graph_.outputs().size(); ++k)
      builder_.output(values_.at(graph_.outputs()[k]), graph_.output_label(k));
    for (const Graph::WriteBack& write : graph_.write_backs())
      builder_.write_back(values_.at(write.target), values_.at(write.source));
    return builder_.finish();
  }

 private:
  /// By call of a region: its body, with what is nested in it marked as the region's.
  std::map<const Node*, Graph> bodies() const {
    std::map<const Node*, Graph> bodies;
    for (const NodePtr& node : graph_.nodes()) {
      if (node->op_name() != "region") continue;
      Marked known;
      bodies.emplace(node.get(), marked(node->graph("body"), node->name(), false, known));
    }
    return bodies;
  }
  const Graph& body_of(const Node& call) const { return bodies_.at(&call); }

  /// Values that outputs, write-backs and effects need.
  using Needed = std::set<Value>;

  /// Finds what is needed, through the bodies: order that names a call means the nodes of its body that stay,
  /// and would be lost with those that go.
  void find_needed() {
    for (const Value& output : graph_.outputs()) needed_.insert(output);
    for (const Graph::WriteBack& write : graph_.write_backs()) needed_.insert(write.source);
    for (std::size_t k = graph_.nodes().size(); k-- > 0;) {
      const Node& node = *graph_.nodes()[k];
      if (node.op_name() == "region")
        find_needed_in(node);
      else if (is_needed(node, needed_))
        need_operands(node, makers_, needed_);
    }
  }

  void find_needed_in(const Node& call) {
    const Graph& body = body_of(call);
    Needed& inside = needed_in_[&call];
    for (std::uint32_t k = 0; k < body.outputs().size(); ++k)
      if (needed_.contains(call.value(k))) inside.insert(body.outputs()[k]);
    const SizeMakers makers(body);
    for (std::size_t k = body.nodes().size(); k-- > 0;) {
      const Node& node = *body.nodes()[k];
      if (!is_needed(node, inside)) continue;
      need_operands(node, makers, inside);
      for (const Value& maker : makers_.values_used_by(node))
        if (maker.node != &call) needed_.insert(maker);
    }
    for (std::size_t k = 0; k < body.inputs().size(); ++k)
      if (inside.contains(body.inputs()[k])) needed_.insert(call.input(k));
  }

  static bool is_needed(const Node& node, const Needed& needed) {
    if (!is_pure(node)) return true;
    for (std::uint32_t k = 0; k < node.outputs().size(); ++k)
      if (needed.contains(node.value(k))) return true;
    return false;
  }

  /// What `node` reads, and what tells the sizes that it uses.
  static void need_operands(const Node& node, const SizeMakers& makers, Needed& needed) {
    for (const Value& input : node.inputs())
      if (input) needed.insert(input);
    for (const Value& maker : makers.values_used_by(node)) needed.insert(maker);
  }

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
      if (node->op_name() == "region") take(body_of(*node));
    return env;
  }

  std::vector<Value> order_of(const Node& node) const {
    std::vector<Value> result;
    for (Value first : node.after()) {
      auto now = orders_.find(first.node);
      // After a view that is gone means after what it looks at.
      while (now == orders_.end() && (first = viewed(first))) now = orders_.find(first.node);
      if (now == orders_.end()) continue;
      for (const Value& value : now->second)
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
    const Graph& body = body_of(call);
    const Needed& needed = needed_in_.at(&call);
    std::map<Value, Value> inside;
    for (std::size_t k = 0; k < body.inputs().size(); ++k)
      if (needed.contains(body.inputs()[k])) inside[body.inputs()[k]] = values_.at(call.input(k));
    const std::vector<Value> before = order_of(call);
    std::set<const Node*> made_here;
    std::set<const Node*> read;
    std::vector<Value> made_values;
    for (const NodePtr& node : body.nodes()) {
      if (node->op_name() == "input" || !is_needed(*node, needed)) continue;
      std::vector<Value> inputs;
      for (const Value& input : node->inputs()) inputs.push_back(input ? inside.at(input) : input);
      // What reads a node of the body comes after it anyway.
      const bool first_of_body =
          node->op_name() != "const" && std::ranges::none_of(inputs, [&](const Value& v) {
            return v && made_here.contains(v.node);
          });
      std::vector<Value> order = first_of_body ? before : std::vector<Value>();
      for (const Value& first : node->after())
        if (const auto now = inside.find(first); now != inside.end()) order.push_back(now->second);
      const Node* made = builder_.transplant(node, inputs, order, in_region(*node, call.name()));
      for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
        inside[node->value(k)] = made->value(k);
      if (node->op_name() == "const") continue;
      made_here.insert(made);
      for (const Value& input : inputs) read.insert(input.node);
      made_values.push_back(made->value());
    }
    for (std::uint32_t k = 0; k < body.outputs().size(); ++k)
      if (needed_.contains(call.value(k))) values_[call.value(k)] = inside.at(body.outputs()[k]);
    if (body.outputs().empty() && needed_.contains(call.value()))
      values_[call.value()] = builder_.constant(Literal::of_ints(u8, {0}, {}));
    // What no other node of the body reads comes last.
    std::erase_if(made_values, [&](const Value& value) { return read.contains(value.node); });
    if (made_values.empty()) made_values = before;
    orders_[&call] = std::move(made_values);
  }

  const Graph& graph_;
  const SizeMakers makers_;
  const std::map<const Node*, Graph> bodies_;
  GraphBuilder builder_;
  Needed needed_;
  std::map<const Node*, Needed> needed_in_;  ///< the bodies, by call
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
