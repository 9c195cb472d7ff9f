#include "ir/structural_key.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <vector>

#include "ir/analysis/unbacked.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

/// Numbers in the key begin here: beyond those of sizes that come from outside.
constexpr std::uint32_t kFirstLate = 1u << 30;

using Late = std::optional<base::SymbolExprs>;

/// What is known of nested graphs, however many paths of calls lead to one.
class KnownGraphs {
 public:
  /// Symbols of which the graph speaks, those that it defines itself left out.
  const std::set<base::Symbol>& free_symbols(const Graph& graph) {
    if (const auto known = free_.find(&graph); known != free_.end()) return known->second;
    std::vector<base::Symbol> symbols;
    std::set<base::Symbol> free, defined;
    for (const NodePtr& node : graph.nodes()) {
      for (const TensorMeta& meta : node->outputs()) {
        collect(meta.sizes, symbols);
        collect(meta.strides, symbols);
      }
      for (const auto& [key, attr] : node->attrs()) {
        if (const auto* size = std::get_if<SymExpr>(&attr)) size->collect_symbols(symbols);
        if (const auto* sizes = std::get_if<Dims>(&attr)) collect(*sizes, symbols);
        const auto* nested = std::get_if<GraphRef>(&attr);
        if (nested == nullptr || nested->graph == nullptr) continue;
        const std::set<base::Symbol>& inside = free_symbols(*nested->graph);
        free.insert(inside.begin(), inside.end());
      }
      for (const base::Symbol& symbol : unbacked_defined(*node)) defined.insert(symbol);
    }
    free.insert(symbols.begin(), symbols.end());
    for (const base::Symbol& symbol : defined) free.erase(symbol);
    return free_.emplace(&graph, std::move(free)).first->second;
  }

  /// The key of a graph that speaks of no late size of another.
  template <typename Make>
  base::Hash128 closed_key(const Graph& graph, Make&& make) {
    if (const auto known = keys_.find(&graph); known != keys_.end()) return known->second;
    return keys_.emplace(&graph, make()).first->second;
  }

 private:
  static void collect(const Dims& sizes, std::vector<base::Symbol>& symbols) {
    for (const SymExpr& size : sizes) size.collect_symbols(symbols);
  }

  std::unordered_map<const Graph*, std::set<base::Symbol>> free_;
  std::unordered_map<const Graph*, base::Hash128> keys_;
};

class StructuralKey {
 public:
  StructuralKey(Late late, KnownGraphs& nested) : late_(std::move(late)), nested_(nested) {}

  static base::Hash128 of(const Graph& graph, Late late, KnownGraphs& nested) {
    StructuralKey key(std::move(late), nested);
    for (const NodePtr& node : graph.nodes()) key.add(*node);
    for (const Value& input : graph.inputs()) key.add(input);
    for (const Value& output : graph.outputs()) key.add(output);
    for (const Graph::WriteBack& write : graph.write_backs()) {
      key.add(write.target);
      key.add(write.source);
    }
    return key.finish();
  }

 private:
  void add(Value value) {
    if (!value)
      add(~std::uint64_t{0});
    else
      add(numbers_.at(value.node) << 8 | value.index);
  }
  void add(const Node& node) {
    numbers_.emplace(&node, numbers_.size());
    add(node.op_name());
    add(node.inputs().size());
    for (const Value& input : node.inputs()) add(input);
    if (late_) name_late_sizes(node);
    add(node.attrs());
    for (const TensorMeta& meta : node.outputs()) add(renamed(meta).to_string());
    add(annotation_hash(node.annotations()));
    for (const Value& first : node.after()) add(first);
  }
  base::Hash128 finish() const {
    return base::hash128(words_.data(), words_.size() * sizeof(std::uint64_t));
  }
  void add(std::uint64_t word) { words_.push_back(word); }
  void add(std::string_view text) { add(base::hash64(text)); }

  void name_late_sizes(const Node& node) {
    for (const base::Symbol& symbol : unbacked_defined(node))
      late_->emplace(symbol, base::Symbol{base::Symbol::Kind::Unbacked,
                                          kFirstLate + static_cast<std::uint32_t>(late_->size())});
  }

  /// Graphs in attributes may speak of sizes that this one finds.
  void add(const Attrs& attrs) {
    if (!late_ || late_->empty()) return add(hash(attrs));
    Attrs changed = attrs;
    for (auto& [key, attr] : changed) {
      if (auto* size = std::get_if<SymExpr>(&attr)) *size = renamed(*size);
      if (auto* sizes = std::get_if<Dims>(&attr)) *sizes = renamed(*sizes);
      const auto* nested = std::get_if<GraphRef>(&attr);
      if (nested == nullptr || nested->graph == nullptr) continue;
      const base::Hash128 inside = key_of(*nested->graph);
      add(inside.low);
      add(inside.high);
      attr = GraphRef();
    }
    add(hash(changed));
  }

  base::Hash128 key_of(const Graph& graph) {
    const std::set<base::Symbol>& free = nested_.free_symbols(graph);
    if (std::ranges::any_of(free, [this](const auto& symbol) { return late_->contains(symbol); }))
      return of(graph, late_, nested_);
    return nested_.closed_key(graph, [&] { return of(graph, base::SymbolExprs(), nested_); });
  }

  SymExpr renamed(const SymExpr& size) const { return size.substitute(*late_); }
  Dims renamed(Dims sizes) const {
    for (SymExpr& size : sizes) size = renamed(size);
    return sizes;
  }
  TensorMeta renamed(TensorMeta meta) const {
    if (!late_ || late_->empty()) return meta;
    meta.sizes = renamed(std::move(meta.sizes));
    meta.strides = renamed(std::move(meta.strides));
    return meta;
  }

  static std::uint64_t annotation_hash(const Annotations& annotations) {
    std::uint64_t h = annotations.size();
    for (const auto& [key, annotation] : annotations) {
      h = base::combine(h, base::hash64(key));
      h = base::combine(h, std::visit(
                               [](const auto& v) -> std::uint64_t {
                                 using T = std::decay_t<decltype(v)>;
                                 if constexpr (std::is_same_v<T, std::string>)
                                   return base::hash64(v);
                                 else if constexpr (std::is_arithmetic_v<T>)
                                   return base::hash64(&v, sizeof v);
                                 else
                                   return annotation_hash(*v);
                               },
                               annotation.value));
    }
    return h;
  }

  Late late_;
  KnownGraphs& nested_;
  std::vector<std::uint64_t> words_;
  std::unordered_map<const Node*, std::uint64_t> numbers_;
};

}  // namespace

base::Hash128 structural_key(const Graph& graph, std::optional<base::SymbolExprs> late) {
  KnownGraphs nested;
  return StructuralKey::of(graph, std::move(late), nested);
}

}  // namespace heddle::ir
