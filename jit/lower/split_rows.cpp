#include "jit/lower/split_rows.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/reduction_parts.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using ir::Node;
using ir::ReduceOp;
using ir::Value;
using Values = std::vector<Value>;

/// Rows that lie one after the other in the operand of a reduction.
struct Rows {
  ir::Dims kept;  ///< sizes of what is not reduced
  std::int64_t length = 0;
};

/// The rows of few long ones.
std::optional<Rows> long_rows(const Node& node) {
  if (!node.op().lowering.reduce || ir::wants_fallback(node)) return std::nullopt;
  const ir::Dims& sizes = node.input(0).meta().sizes;
  std::vector<bool> reduced(sizes.size(), false);
  for (const std::int64_t axis : reduced_axes(node)) reduced[static_cast<std::size_t>(axis)] = true;
  Rows rows;
  SymExpr length = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (reduced[d]) {
      length *= sizes[d];
      continue;
    }
    if (!length.is_constant(1) && !sizes[d].is_constant(1)) return std::nullopt;
    rows.kept.push_back(sizes[d]);
  }
  if (!length.is_constant() || length.constant() < kLongRow) return std::nullopt;
  const SymExpr count = base::product(rows.kept);
  if (count.is_constant() && count.constant() >= kManyRows) return std::nullopt;
  rows.length = length.constant();
  return rows;
}

/// Whether what a row is padded with could be its result: the last of equal elements.
bool takes_padding(const Node& node, const Rows& rows) {
  return is_arg(node) && node.flag("last") && rows.length % row_part(rows.length) != 0;
}

class RowSplitter {
 public:
  RowSplitter(ir::GraphBuilder& builder, const Node& node, const Rows& rows)
      : b_(builder), node_(node), op_(*node.op().lowering.reduce), rows_(rows) {}

  Value run(Value x) const { return is_arg(node_) ? best(x) : reduced(x); }

 private:
  /// [kept..., parts, elements of a part]
  Value in_parts(Value x, ReduceOp op) const {
    const std::int64_t part = row_part(rows_.length);
    ir::Dims sizes = rows_.kept;
    sizes.push_back(rows_.length);
    const SymExpr parts[] = {(rows_.length + part - 1) / part, part};
    return jit::in_parts(b_, reshape(x, sizes), rows_.kept.size(), parts,
                         [&] { return reduction_identity(b_, op, x.meta().dtype); });
  }

  Value reduced(Value x) const {
    const DType dtype = x.meta().dtype;
    const Value parts = in_parts(converted(b_, x, partial_dtype(op_, dtype)), op_);
    const Value row = reduce_last(node_.op(), reduce_last(node_.op(), parts));
    return reshape(converted(b_, row, dtype), node_.output().sizes);
  }

  Value best(Value x) const {
    const auto axis = static_cast<std::int64_t>(rows_.kept.size());
    return reshape(place_in_parts(b_, node_, in_parts(x, op_), axis, row_part(rows_.length)),
                   node_.output().sizes);
  }

  Value reduce_last(const ir::OpDef& op, Value x) const {
    const Value operands[] = {x};
    return b_
        .call(op, operands,
              {{"axes", std::vector<std::int64_t>{x.meta().rank() - 1}}, {"keepdims", false}})
        ->value();
  }

  Value reshape(Value x, const ir::Dims& sizes) const {
    return b_.emit("reshape", {x}, {{"sizes", sizes}});
  }

  ir::GraphBuilder& b_;
  const Node& node_;
  const ReduceOp op_;
  const Rows& rows_;
};

}  // namespace

ir::Graph split_rows(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda) return graph;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        if (!combines(*node) && !is_arg(*node)) return std::nullopt;
        const auto rows = long_rows(*node);
        if (!rows || takes_padding(*node, *rows)) return std::nullopt;
        return Values{
            RowSplitter(rewriter.builder(), *node, *rows).run(rewriter.map(node->input(0)))};
      });
}

ir::Graph decompose_row_variances(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda) return graph;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        if (!is_variance(*node) || !long_rows(*node)) return std::nullopt;
        ir::DecomposeContext context(rewriter.builder(), node, rewriter.map(node->inputs()));
        return node->op().lowering.decompose(context);
      });
}

}  // namespace heddle::jit
