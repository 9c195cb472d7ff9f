#include "jit/lower/split_attention.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/reduction_parts.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using ir::Node;
using ir::Value;

/// Keys of a part for each head of k of a batch, and heads that count at least: a part is worth being fetched by another thread.
constexpr std::int64_t kKeysPerHead = 64;
constexpr std::int64_t kLeastHeads = 2;
constexpr std::int64_t kMostPartColumns = 128;

/// Keys of a part; none where the node stays as it is.
std::optional<SymExpr> keys_of_a_part(const Node& node) {
  if (node.op_name() != "attention" || ir::wants_fallback(node)) return std::nullopt;
  const ir::Dims& q = node.input(0).meta().sizes;
  const ir::Dims& k = node.input(1).meta().sizes;
  const SymExpr& columns = node.output().sizes[3];
  if (q[2] == k[2] || !k[1].is_constant() || !columns.is_constant() ||
      columns.constant() > kMostPartColumns)
    return std::nullopt;
  const std::int64_t least = std::max(k[1].constant(), kLeastHeads) * kKeysPerHead;
  SymExpr part = max(1, q[0] * q[2]) * least;
  const bool is_one = k[2].is_constant() && k[2].constant() <= part.as_constant().value_or(least);
  return is_one ? std::nullopt : std::optional(std::move(part));
}

}  // namespace

ir::Graph split_attention(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  using Values = std::vector<Value>;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        const std::optional<SymExpr> part = keys_of_a_part(*node);
        if (!part) return std::nullopt;
        ir::GraphBuilder& b = rewriter.builder();
        ir::Attrs attrs = {{"part", *part}};
        for (const char* name : {"causal", "scale", "softcap", "hidden", "bf16"})
          attrs.insert_or_assign(name, node->attr(name));
        const Values operands = rewriter.map(node->inputs());
        const Node* parts = b.call("attention_parts", operands, attrs);
        const Value joined =
            b.emit("join_attention", {parts->value(0), parts->value(1), parts->value(2)},
                   {{"nan_rows", node->flag("nan_rows")}});
        return Values{converted(b, joined, node->output().dtype)};
      });
}

}  // namespace heddle::jit
