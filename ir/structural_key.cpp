#include "ir/structural_key.h"

#include <unordered_map>
#include <vector>

#include "ir/analysis/unbacked.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

/// Numbers in the key begin here: beyond those of sizes that come from outside.
constexpr std::uint32_t kFirstLate = 1u << 30;

class StructuralKey {
 public:
  explicit StructuralKey(std::optional<base::SymbolExprs> late) : late_(std::move(late)) {}

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

 private:
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
      const base::Hash128 inside = structural_key(*nested->graph, late_);
      add(inside.low);
      add(inside.high);
      attr = GraphRef();
    }
    add(hash(changed));
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

  std::optional<base::SymbolExprs> late_;
  std::vector<std::uint64_t> words_;
  std::unordered_map<const Node*, std::uint64_t> numbers_;
};

}  // namespace

base::Hash128 structural_key(const Graph& graph, std::optional<base::SymbolExprs> late) {
  StructuralKey key(std::move(late));
  for (const NodePtr& node : graph.nodes()) key.add(*node);
  for (const Value& input : graph.inputs()) key.add(input);
  for (const Value& output : graph.outputs()) key.add(output);
  for (const Graph::WriteBack& write : graph.write_backs()) {
    key.add(write.target);
    key.add(write.source);
  }
  return key.finish();
}

}  // namespace heddle::ir
