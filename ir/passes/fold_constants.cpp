#include "ir/passes/fold_constants.h"

#include <algorithm>

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

/// An op without operands is a compact form of its own (iota), not work to be saved; a loop may take long.
bool foldable(const Node& node, std::span<const Value> operands) {
  return node.op().pure && node.op().evaluate != nullptr && !node.op().lowering.region &&
         !operands.empty() && node.after().empty() && has_static_attrs(node) &&
         std::all_of(operands.begin(), operands.end(), is_constant) &&
         std::all_of(node.outputs().begin(), node.outputs().end(), small_and_static);
}

/// Whether the caller sees strides that a constant, which is row-major, would not have.
bool seen_strided(const Node& node, const std::set<StorageId>& visible) {
  return std::any_of(node.outputs().begin(), node.outputs().end(), [&](const TensorMeta& meta) {
    return visible.contains(meta.storage) && meta.strides != row_major(meta.sizes);
  });
}

}  // namespace

Graph fold_constants(const Graph& graph) {
  const std::set<StorageId> visible = visible_storages(graph);
  return rewrite(graph,
                 [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
                   const std::vector<Value> operands = rewriter.map(node->inputs());
                   if (!foldable(*node, operands) || seen_strided(*node, visible)) return {};
                   std::vector<Literal> literals;
                   for (const Value& operand : operands)
                     literals.push_back(operand ? operand.node->literal("value") : Literal());
                   std::vector<Value> folded;
                   for (Literal& result : node->op().evaluate(EvalContext(*node, literals, {}))) {
                     rewriter.builder().context.name = node->names()[folded.size()];
                     folded.push_back(rewriter.builder().constant(result.clone()));
                   }
                   return folded;
                 });
}

}  // namespace heddle::ir
