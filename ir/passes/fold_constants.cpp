#include "ir/passes/fold_constants.h"

#include <algorithm>
#include <map>

#include "ir/op.h"
#include "ir/passes/visible.h"

namespace heddle::ir {

namespace {

constexpr std::int64_t kMaxElements = 4096;

bool is_constant(const Value& value) { return !value || value.node->op_name() == "const"; }

bool is_static(const Dims& sizes) {
  return std::ranges::all_of(sizes, [](const SymExpr& size) { return size.is_constant(); });
}

/// Sizes that no count betrays included: [6, s0, 0] has no elements whatever s0 is.
bool small_and_static(const TensorMeta& meta) {
  return is_static(meta.sizes) && meta.count().constant() <= kMaxElements;
}

/// A window may move with a size that its extent does not show.
bool has_static_attrs(const Node& node) {
  return std::ranges::all_of(node.attrs(), [](const auto& entry) {
    const auto* dims = std::get_if<Dims>(&entry.second);
    const auto* size = std::get_if<SymExpr>(&entry.second);
    return (dims == nullptr || is_static(*dims)) && (size == nullptr || size->is_constant());
  });
}

/// Whether all but its operands lets `node` be evaluated; a loop may take long.
bool can_evaluate(const Node& node) {
  return node.op().pure && node.op().evaluate != nullptr && !node.op().lowering.region &&
         node.after().empty() && has_static_attrs(node) &&
         std::all_of(node.outputs().begin(), node.outputs().end(), small_and_static);
}

/// Values of a graph that follow from constants and positions.
class Known {
 public:
  /// Whether an op on these is to be folded: an op without operands (iota) is a compact form of its own, and so is what is easily
  /// computed of it, not work to be saved.
  bool folds(const Node& node, std::span<const Value> operands) {
    const bool saves = node.op().expensive || std::ranges::all_of(operands, is_constant);
    return !operands.empty() && saves && can_evaluate(node) &&
           std::ranges::all_of(operands, [this](Value v) { return known(v); });
  }

  /// Of one that is known; empty for an operand that is left out.
  const Literal& literal(Value value) {
    static const Literal kNone;
    return value ? literals_.at(value.node)[value.index] : kNone;
  }

 private:
  bool known(Value value) {
    if (!value) return true;
    // Chains may be as long as the graph.
    std::vector<const Node*> open{value.node};
    while (!open.empty()) {
      const Node& node = *open.back();
      if (literals_.contains(&node) || evaluate(node, open)) open.pop_back();
    }
    return !literals_.at(value.node).empty();
  }

  /// False: operands have to be looked at before, which were added to `open`.
  bool evaluate(const Node& node, std::vector<const Node*>& open) {
    if (node.op_name() == "const") {
      literals_[&node] = {node.literal("value")};
      return true;
    }
    bool follows = can_evaluate(node);
    const std::size_t before = open.size();
    for (const Value& operand : node.inputs()) {
      if (!operand || !follows) continue;
      const auto found = literals_.find(operand.node);
      if (found == literals_.end()) open.push_back(operand.node);
      follows = found == literals_.end() || !found->second.empty();
    }
    if (follows && open.size() != before) return false;
    open.resize(before);
    std::vector<Literal>& literals = literals_[&node];
    if (!follows) return true;
    std::vector<Literal> operands;
    for (const Value& operand : node.inputs()) operands.push_back(literal(operand));
    literals = node.op().evaluate(EvalContext(node, operands, {}));
    return true;
  }

  std::map<const Node*, std::vector<Literal>> literals_;  ///< empty: not known
};

/// Whether the caller sees strides that a constant, which is row-major, would not have.
bool seen_strided(const Node& node, const std::set<StorageId>& visible) {
  return std::any_of(node.outputs().begin(), node.outputs().end(), [&](const TensorMeta& meta) {
    return visible.contains(meta.storage) && meta.strides != row_major(meta.sizes);
  });
}

}  // namespace

Graph fold_constants(const Graph& graph) {
  const std::set<StorageId> visible = visible_storages(graph);
  Known known;
  return rewrite(graph,
                 [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
                   const std::vector<Value> operands = rewriter.map(node->inputs());
                   if (!known.folds(*node, operands) || seen_strided(*node, visible)) return {};
                   std::vector<Literal> literals;
                   for (const Value& operand : operands) literals.push_back(known.literal(operand));
                   std::vector<Value> folded;
                   for (Literal& result : node->op().evaluate(EvalContext(*node, literals, {}))) {
                     rewriter.builder().context.name = node->names()[folded.size()];
                     folded.push_back(rewriter.builder().constant(result.clone()));
                   }
                   return folded;
                 });
}

}  // namespace heddle::ir
