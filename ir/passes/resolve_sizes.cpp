#include "ir/passes/resolve_sizes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/analysis/regions.h"
#include "ir/environment.h"
#include "ir/known_sizes.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

/// Equalities that give away a size of an input. Sizes known only at run time stay symbols: what is
/// assumed of them is checked by nobody before the run.
base::SymbolExprs known_sizes(const Graph& graph) {
  base::SymbolExprs known = equalities(graph.assumptions());
  std::erase_if(known, [](const auto& entry) {
    std::vector<base::Symbol> symbols{entry.first};
    entry.second.collect_symbols(symbols);
    return std::any_of(symbols.begin(), symbols.end(), [](const base::Symbol& symbol) {
      return symbol.kind != base::Symbol::Kind::Size;
    });
  });
  return known;
}

class Resolver {
 public:
  Resolver(const Graph& graph, base::SymbolExprs known)
      : graph_(graph),
        known_(std::move(known)),
        env_(std::make_shared<ShapeEnv>()),
        builder_(graph.name(), env_) {
    assume();
  }

  Graph run() {
    std::size_t next_input = 0;
    for (const Value& input : graph_.inputs()) add_input(input, next_input++);
    for (const NodePtr& node : graph_.nodes())
      if (!values_.contains(node->value())) add_node(*node);
    for (std::size_t k = 0; k < graph_.outputs().size(); ++k)
      builder_.output(values_.at(graph_.outputs()[k]), graph_.output_label(k));
    for (const Graph::WriteBack& write : graph_.write_backs())
      builder_.write_back(values_.at(write.target), values_.at(write.source));
    return builder_.finish();
  }

 private:
  void assume() {
    for (Assumption assumption : graph_.assumptions()) {
      base::Predicate& predicate = assumption.predicate;
      predicate.left = predicate.left.substitute(known_);
      predicate.right = predicate.right.substitute(known_);
      if (!predicate.decide(env_->facts).value_or(false))
        env_->assumptions.push_back(std::move(assumption));
    }
  }

  Dims resolved(const Dims& dims) const {
    Dims result;
    for (const SymExpr& dim : dims) result.push_back(dim.substitute(known_));
    return result;
  }

  void add_input(const Value& input, std::size_t position) {
    TensorMeta meta = input.meta();
    meta.sizes = resolved(meta.sizes);
    meta.strides = resolved(meta.strides);
    const std::string& label = graph_.input_label(position);
    builder_.context = {input.node->annotations(), {}, input.node->location(), {}, {}};
    if (input.node->op_name() == "param") {
      const Literal* value = graph_.parameter(input.node);
      values_[input] = builder_.parameter(
          std::move(meta), value == nullptr ? nullptr : std::make_shared<const Literal>(*value),
          input.node->name(), label);
    } else {
      values_[input] =
          builder_.input(std::move(meta), input.node->name(), label, is_donated(input));
    }
  }

  /// Nested graphs speak of the symbols around them, but for those that the call binds to something else.
  std::shared_ptr<const Graph> resolved(const std::shared_ptr<const Graph>& nested,
                                        const Node& node) {
    base::SymbolExprs known = known_;
    for (const auto& [symbol, expr] : region_sizes(*nested, region_arguments(node)))
      if (expr != SymExpr(symbol)) known.erase(symbol);
    if (known.empty()) return nested;
    if (known.size() < known_.size())
      return std::make_shared<const Graph>(Resolver(*nested, std::move(known)).run());
    std::shared_ptr<const Graph>& made = nested_[nested.get()];
    if (made == nullptr) made = std::make_shared<const Graph>(Resolver(*nested, known_).run());
    return made;
  }

  Attrs resolved(const Node& node) {
    Attrs attrs = node.attrs();
    for (auto& [name, attr] : attrs) {
      auto* ref = std::get_if<GraphRef>(&attr);
      if (ref != nullptr && node.op().region_arguments != nullptr)
        ref->graph = resolved(ref->graph, node);
      if (auto* dims = std::get_if<Dims>(&attr)) *dims = resolved(*dims);
      if (auto* size = std::get_if<SymExpr>(&attr)) *size = size->substitute(known_);
    }
    return attrs;
  }

  /// Sizes known only at run time keep the numbers they had.
  void number_unbacked(const Node& node) {
    std::optional<std::uint32_t> first;
    for (const TensorMeta& meta : node.outputs()) {
      std::vector<base::Symbol> symbols;
      for (const SymExpr& size : meta.sizes) size.collect_symbols(symbols);
      for (const base::Symbol& symbol : symbols) {
        if (symbol.kind != base::Symbol::Kind::Unbacked || !unbacked_.insert(symbol.id).second)
          continue;
        first = std::min(first.value_or(symbol.id), symbol.id);
      }
    }
    if (first) env_->next_unbacked_ = *first;
  }

  void add_node(const Node& node) {
    std::vector<Value> operands;
    for (const Value& operand : node.inputs())
      operands.push_back(operand ? values_.at(operand) : Value{});
    std::vector<Value> after;
    for (const Value& first : node.after()) after.push_back(values_.at(first));
    builder_.context = {node.annotations(),
                        std::move(after),
                        node.location(),
                        {},
                        {node.names().begin(), node.names().end()}};
    number_unbacked(node);
    const Node* made = builder_.call(node.op(), operands, resolved(node));
    for (std::uint32_t k = 0; k < node.outputs().size(); ++k)
      values_[node.value(k)] = made->value(k);
  }

  const Graph& graph_;
  const base::SymbolExprs known_;
  std::shared_ptr<ShapeEnv> env_;
  GraphBuilder builder_;
  std::map<Value, Value> values_;
  std::set<std::uint32_t> unbacked_;
  std::map<const Graph*, std::shared_ptr<const Graph>> nested_;
};

}  // namespace

Graph resolve_sizes(const Graph& graph) {
  base::SymbolExprs known = known_sizes(graph);
  if (known.empty()) return graph;
  return Resolver(graph, std::move(known)).run();
}

Graph assuming(const Graph& graph, std::span<const Assumption> more) {
  const std::shared_ptr<ShapeEnv> env = environment_of(graph);
  env->assumptions.insert(env->assumptions.end(), more.begin(), more.end());
  GraphBuilder builder(graph.name(), env);
  builder.adopt(graph);
  for (const NodePtr& node : graph.nodes()) builder.share(node);
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    builder.output(graph.outputs()[k], graph.output_label(k));
  for (const Graph::WriteBack& write : graph.write_backs())
    builder.write_back(write.target, write.source);
  return builder.finish();
}

}  // namespace heddle::ir
