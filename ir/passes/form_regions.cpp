#include "ir/passes/form_regions.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "ir/analysis/aliases.h"
#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/environment.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

using Unit = std::uint32_t;
constexpr Unit kNoUnit = 0xffffffffu;

bool contains(const std::vector<Value>& values, const Value& value) {
  return std::ranges::find(values, value) != values.end();
}

/// Names for regions: region_0, region_1, … without those that a value or a nested graph has already.
class RegionNames {
 public:
  explicit RegionNames(const Graph& graph) { collect(graph); }

  std::string next() {
    std::string name;
    do {
      name = fmt::format("{}{}", kStem, next_++);
    } while (taken_.contains(name));
    return name;
  }

 private:
  static constexpr std::string_view kStem = "region_";

  void take(std::string_view name) {
    if (name.starts_with('@')) name.remove_prefix(1);
    if (name.starts_with(kStem)) taken_.emplace(name);
  }
  void collect(const Graph& graph) {
    for (const NodePtr& node : graph.nodes()) {
      for (const std::string& name : node->names()) take(name);
      for (const auto& [key, attr] : node->attrs()) {
        const auto* ref = std::get_if<GraphRef>(&attr);
        if (ref == nullptr) continue;
        take(ref->name);
        if (seen_.insert(ref->graph.get()).second) collect(*ref->graph);
      }
    }
  }

  std::uint32_t next_ = 0;
  std::set<std::string, std::less<>> taken_;
  std::set<const Graph*> seen_;
};

/// Builds the graph with calls from the regions of one graph.
class Scoop {
 public:
  Scoop(const Graph& graph, std::vector<Region> regions, RegionNames& names)
      : graph_(graph),
        regions_(std::move(regions)),
        names_(names),
        env_(*environment_of(graph)),
        builder_(graph.name(), std::make_shared<ShapeEnv>(env_)) {
    for (Unit unit = 0; unit < regions_.size(); ++unit)
      for (const Node* node : regions_[unit].nodes) unit_of_.emplace(node, unit);
    find_results();
  }

  Graph run() {
    builder_.adopt(graph_);
    // In graph order, but a region as a whole: what it needs first, then it, whenever one of it is due.
    for (const NodePtr& node : graph_.nodes())
      if (node->op_name() != "const" || read_outside_.contains(node.get())) emit(node);
    for (std::size_t k = 0; k < graph_.outputs().size(); ++k)
      builder_.output(values_.at(graph_.outputs()[k]), graph_.output_label(k));
    for (const Graph::WriteBack& write : graph_.write_backs())
      builder_.write_back(values_.at(write.target), values_.at(write.source));
    return builder_.finish();
  }

 private:
  Unit unit_of(const Node* node) const {
    const auto found = unit_of_.find(node);
    return found == unit_of_.end() ? kNoUnit : found->second;
  }

  /// Whether nobody reads what the nodes of `unit` compute, and they have no other effect.
  bool is_dropped(Unit unit) const {
    return unit != kNoUnit && results_[unit].empty() &&
           std::ranges::all_of(regions_[unit].nodes,
                               [](const Node* node) { return is_pure(*node); });
  }

  void find_results() {
    results_.resize(regions_.size());
    std::set<Value> known;
    const auto read = [&](const Value& value, Unit reader) {
      if (!value) return;
      const Unit unit = unit_of(value.node);
      if (reader == kNoUnit) read_outside_.insert(value.node);
      if (unit != kNoUnit && unit != reader && known.insert(value).second)
        results_[unit].push_back(value);
    };
    const SizeMakers makers(graph_);
    for (const NodePtr& node : graph_.nodes()) {
      pointers_.emplace(node.get(), node);
      for (const Value& input : node->inputs()) read(input, unit_of(node.get()));
      // Who uses no more of a value than its size, which only the run tells, needs it all the same.
      for (const Value& maker : makers.values_used_by(*node)) read(maker, unit_of(node.get()));
    }
    for (const Value& output : graph_.outputs()) read(output, kNoUnit);
    for (const Graph::WriteBack& write : graph_.write_backs()) read(write.source, kNoUnit);
    for (Unit unit = 0; unit < regions_.size(); ++unit) sort_results(unit);
  }

  void sort_results(Unit unit) {
    std::unordered_map<const Node*, std::size_t> position;
    for (const Node* node : regions_[unit].nodes) position.emplace(node, position.size());
    std::ranges::sort(results_[unit], [&](const Value& a, const Value& b) {
      return std::pair(position.at(a.node), a.index) < std::pair(position.at(b.node), b.index);
    });
  }

  /// Makes `node`, or the region that it is in, after all that it needs and that is not there yet.
  void emit(const NodePtr& node) {
    std::vector<NodePtr> open{node};
    while (!open.empty()) {
      const NodePtr next = open.back();
      const std::size_t count = open.size();
      if (!done_.contains(next.get())) add_missing(*next, open);
      if (open.size() > count) continue;
      open.pop_back();
      if (done_.contains(next.get())) continue;
      if (const Unit unit = unit_of(next.get()); unit != kNoUnit)
        emit_region(unit);
      else
        emit_node(next);
    }
  }

  /// `first`, or where it is a view that is dropped what it looks at; null for another value that is dropped.
  Value kept(Value first) const {
    while (first && is_dropped(unit_of(first.node))) first = viewed(first);
    return first;
  }

  /// Adds to `open` what must be made before `node`, what comes first last.
  void add_missing(const Node& node, std::vector<NodePtr>& open) const {
    const Unit unit = unit_of(&node);
    const std::size_t count = open.size();
    const Node* const own[] = {&node};
    const auto add = [&](const Value& value) {
      if (!value || done_.contains(value.node)) return;
      const bool inside =
          unit != kNoUnit && (unit_of(value.node) == unit || value.node->op_name() == "const");
      if (!inside) open.push_back(pointers_.at(value.node));
    };
    const std::span<const Node* const> members =
        unit == kNoUnit ? std::span<const Node* const>(own) : regions_[unit].nodes;
    if (is_dropped(unit)) return;
    for (const Node* member : members) {
      for (const Value& input : member->inputs()) add(input);
      for (const Value& first : member->after()) add(kept(first));
    }
    std::reverse(open.begin() + static_cast<std::ptrdiff_t>(count), open.end());
  }

  void emit_node(const NodePtr& node) {
    done_.insert(node.get());
    const Node* made = builder_.with_inputs(node, mapped(node->inputs()), order_of(*node));
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      values_[node->value(k)] = made->value(k);
  }

  std::vector<Value> mapped(std::span<const Value> values) const {
    std::vector<Value> result;
    for (const Value& value : values) result.push_back(value ? values_.at(value) : value);
    return result;
  }

  /// Adds what order means when it names `first`: of a region, its call. A pure region that nothing reads
  /// is gone, and order with it.
  void add_order(std::vector<Value>& order, Value first) const {
    first = kept(first);
    if (!first) return;
    const Unit unit = unit_of(first.node);
    const auto call = calls_.find(unit);
    const Value now = unit == kNoUnit ? values_.at(first) : call->second;
    if (!contains(order, now)) order.push_back(now);
  }

  std::vector<Value> order_of(const Node& node) const {
    std::vector<Value> result;
    for (const Value& first : node.after()) add_order(result, first);
    return result;
  }

  void emit_region(Unit unit) {
    const Region& region = regions_[unit];
    for (const Node* node : region.nodes) done_.insert(node);
    if (is_dropped(unit)) return;
    std::vector<Value> operands;
    std::vector<Value> after;
    std::string name = names_.next();
    Graph body = make_body(unit, name, operands, after);
    builder_.context = {};
    builder_.context.annotations = {{"compile", annotation_of(region.mark)}};
    builder_.context.after = std::move(after);
    builder_.context.location = region.nodes.front()->location();
    builder_.context.name = name;
    for (std::size_t k = 0; k < results_[unit].size(); ++k)
      builder_.context.names.push_back(k == 0 ? name : fmt::format("{}.{}", name, k));
    const Node* call = builder_.call(
        "region", mapped(operands),
        {{"body", GraphRef{std::move(name), std::make_shared<const Graph>(std::move(body))}}});
    builder_.context = {};
    calls_.emplace(unit, call->value());
    for (std::uint32_t k = 0; k < results_[unit].size(); ++k)
      values_[results_[unit][k]] = call->value(k);
  }

  static Annotation annotation_of(const RegionMark& mark) {
    if (mark.options.empty()) {
      if (mark.id.empty()) return {true};
      return {mark.id};
    }
    Annotations map{{"options", {std::make_shared<const Annotations>(mark.options)}}};
    if (!mark.id.empty()) map.emplace("id", Annotation{mark.id});
    return {std::make_shared<const Annotations>(std::move(map))};
  }

  /// @param operands,after  filled with outside values of the old graph, and of the new one.
  Graph make_body(Unit unit, const std::string& name, std::vector<Value>& operands,
                  std::vector<Value>& after) {
    GraphBuilder body(name, std::make_shared<ShapeEnv>(env_));
    std::map<Value, Value> inside;
    const auto bring_in = [&](const Value& value) {
      if (!value || inside.contains(value) || unit_of(value.node) == unit) return;
      if (value.node->op_name() == "const") {
        inside[value] = body.with_inputs(pointers_.at(value.node), {}, {})->value();
        return;
      }
      TensorMeta meta = value.meta();
      inside[value] = body.input(std::move(meta), value.name().substr(1));
      operands.push_back(value);
    };
    for (const Node* node : regions_[unit].nodes)
      for (const Value& input : node->inputs()) bring_in(input);
    for (const Node* node : regions_[unit].nodes) {
      std::vector<Value> inputs;
      for (const Value& input : node->inputs()) inputs.push_back(input ? inside.at(input) : input);
      std::vector<Value> order;
      for (const Value& first : node->after()) {
        if (unit_of(first.node) == unit) {
          order.push_back(inside.at(first));
        } else {
          add_order(after, first);
        }
      }
      const Node* made = body.with_inputs(pointers_.at(node), inputs, order);
      for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
        inside[node->value(k)] = made->value(k);
    }
    for (const Value& result : results_[unit]) body.output(inside.at(result));
    return body.finish();
  }

  const Graph& graph_;
  std::vector<Region> regions_;
  RegionNames& names_;
  ShapeEnv env_;  ///< what is known when the builders start
  GraphBuilder builder_;
  std::unordered_map<const Node*, Unit> unit_of_;
  std::unordered_map<const Node*, NodePtr> pointers_;
  std::vector<std::vector<Value>> results_;       ///< by unit: old values, in graph order
  std::unordered_set<const Node*> read_outside_;  ///< by nodes of no region, or as results
  std::unordered_set<const Node*> done_;
  std::map<Value, Value> values_;  ///< old to new
  std::map<Unit, Value> calls_;
};

/// Names and nested graphs that one run of the pass has dealt with.
struct Search {
  const MarkFunction& mark;
  RegionNames names;
  std::map<const void*, std::shared_ptr<const Graph>> nested;  ///< by the graph before
};

Graph search(const Graph& graph, Search& state);

/// The graph with regions formed inside the nested graphs of its unmarked nodes.
Graph search_nested(const Graph& graph, Search& state) {
  return rewrite(graph,
                 [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
                   if (node->op_name() == "region" || state.mark(*node)) return {};
                   Attrs attrs = node->attrs();
                   bool changed = false;
                   for (auto& [name, attr] : attrs) {
                     auto* ref = std::get_if<GraphRef>(&attr);
                     if (ref == nullptr) continue;
                     auto [at, fresh] = state.nested.try_emplace(ref->graph.get());
                     if (fresh) {
                       Graph after = search(*ref->graph, state);
                       at->second = after.identical(*ref->graph)
                                        ? ref->graph
                                        : std::make_shared<const Graph>(std::move(after));
                     }
                     changed = changed || at->second != ref->graph;
                     ref->graph = at->second;
                   }
                   if (!changed) return {};
                   const std::vector<Value> inputs = rewriter.map(node->inputs());
                   const Node* made = rewriter.builder().call(node->op(), inputs, std::move(attrs));
                   std::vector<Value> values;
                   for (std::uint32_t k = 0; k < made->outputs().size(); ++k)
                     values.push_back(made->value(k));
                   return values;
                 });
}

Graph search(const Graph& graph, Search& state) {
  const Graph current = search_nested(graph, state);
  std::vector<std::optional<RegionMark>> marks;
  bool any = false;
  for (const NodePtr& node : current.nodes()) {
    const bool skip = !may_be_marked(*node) || node->op_name() == "region";
    marks.push_back(skip ? std::nullopt : state.mark(*node));
    any = any || marks.back();
  }
  if (!any) return current;
  return Scoop(current, partition_regions(current, marks), state.names).run();
}

}  // namespace

Graph form_regions(const Graph& graph, const MarkFunction& mark) {
  Search state{mark, RegionNames(graph), {}};
  return search(graph, state);
}

Graph form_regions(const Graph& graph) {
  return form_regions(
      graph, [](const Node& node) { return region_mark(node.annotations(), node.location()); });
}

bool wants_fallback(const Node& node) {
  const auto found = node.annotations().find("should_fallback");
  if (found == node.annotations().end()) return false;
  const bool* flag = std::get_if<bool>(&found->second.value);
  return flag != nullptr && *flag;
}

}  // namespace heddle::ir
