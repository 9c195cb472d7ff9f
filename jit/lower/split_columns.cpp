#include "jit/lower/split_columns.h"

#include <algorithm>

#include "ir/analysis/unbacked.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/domain.h"
#include "jit/lower/reduction_parts.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using ir::Node;
using ir::ReduceOp;
using ir::Value;
using Values = std::vector<Value>;

constexpr std::int64_t kBlockThreads = 256;
/// Elements that one thread reduces of a column of unknown length.
constexpr std::int64_t kUnknownPart = 64;
/// Parts of a column, at most: what a block of threads reduces in the second step.
constexpr std::int64_t kMostParts = 16384;
/// From as many elements for so few results on, one kernel is slow even if it spares what is read again.
constexpr std::int64_t kStarvedLength = 512;
constexpr std::int64_t kStarvedResults = 16384;
/// Results of blocks that each go over several runs.
constexpr std::int64_t kFewBlocks = 264;

/// The operand of a reduction over neighbouring dimensions as [outer, length, inner].
struct Columns {
  SymExpr outer = 1, length = 1, inner = 1;
  std::int64_t lanes =
      1;         ///< columns that a thread takes: as many as a word of memory has elements
  int runs = 0;  ///< of neighbouring dimensions that are reduced

  explicit Columns(const Node& node) {
    const ir::Dims& sizes = node.input(0).meta().sizes;
    lanes = std::max<std::int64_t>(
        1, kCudaWordBytes / static_cast<std::int64_t>(size_of(node.input(0).meta().dtype)));
    std::vector<bool> reduced(sizes.size(), false);
    for (const std::int64_t axis : reduced_axes(node))
      reduced[static_cast<std::size_t>(axis)] = true;
    bool in_run = false;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d].is_constant(1)) continue;
      if (reduced[d]) {
        runs += in_run ? 0 : 1;
        length *= sizes[d];
      } else {
        (runs == 0 ? outer : inner) *= sizes[d];
      }
      in_run = reduced[d];
    }
  }

  /// As far as it is known.
  std::int64_t results() const {
    return outer.as_constant().value_or(1) * inner.as_constant().value_or(1);
  }
  bool is_starved() const {
    return outer.is_constant() && inner.is_constant() && results() <= kStarvedResults &&
           length.is_constant() && length.constant() >= kStarvedLength;
  }
};

/// A column as `count` parts of `length` times `rows` elements; lane k of `rows` takes every rows-th one from k on.
struct Parts {
  SymExpr count;
  std::int64_t length;
  std::int64_t rows;

  std::int64_t elements() const { return length * rows; }
};

std::optional<Parts> parts_of_unknown(const Columns& columns, std::int64_t rows) {
  if (ir::is_unbacked(columns.length)) return std::nullopt;
  return Parts{ceildiv(columns.length, kUnknownPart * rows), kUnknownPart, rows};
}

/// None where columns are short, or many.
std::optional<Parts> parts_of(const Columns& columns) {
  if (columns.runs != 1 || !columns.inner.is_constant() || columns.inner.is_constant(1) ||
      ir::is_unbacked(columns.outer))
    return std::nullopt;
  const std::int64_t inner = columns.inner.constant();
  if (inner > kBusyThreads / 4 || columns.results() == 0) return std::nullopt;
  const std::int64_t beside = std::max<std::int64_t>(1, columns.lanes * kBlockThreads / inner);
  if (!columns.length.is_constant()) return parts_of_unknown(columns, beside);
  const std::int64_t length = columns.length.constant();
  const std::int64_t wanted =
      std::min({columns.lanes * kBusyThreads / columns.results(), length / kLeastPart, kMostParts});
  if (length < kLeastColumn || wanted < 4) return std::nullopt;
  const std::int64_t rows = std::min(beside, wanted);
  const std::int64_t blocks = (wanted + rows - 1) / rows;
  const std::int64_t each = (length + blocks * rows - 1) / (blocks * rows);
  for (std::int64_t n = rows; n > rows / 2; --n)
    for (std::int64_t part = each; part < 2 * each; ++part)
      if (length % (n * part) == 0) return Parts{length / (n * part), part, n};
  return Parts{(length + each * rows - 1) / (each * rows), each, rows};
}

bool may_be_split(const Node& node) { return combines(node) && !ir::wants_fallback(node); }

/// Elements of the parts of a column in which an extreme's place is found: side by side, so that of equal ones the first (or
/// last) is told. None where columns stay whole.
std::optional<std::int64_t> place_part(const Node& node) {
  if (!is_arg(node) || ir::wants_fallback(node)) return std::nullopt;
  const Columns columns(node);
  if (!columns.length.is_constant() || !parts_of(columns)) return std::nullopt;
  const std::int64_t length = columns.length.constant();
  const std::int64_t wanted =
      std::min({kBusyThreads / columns.results(), length / kLeastPart, kMostParts});
  const std::int64_t least = (length + wanted - 1) / wanted;
  for (std::int64_t part = least; part < 2 * least; ++part)
    if (length % part == 0) return part;
  // What fills the last part could be the last of equal elements.
  return node.flag("last") ? std::nullopt : std::optional(least);
}

Value reduced(ir::GraphBuilder& b, const Node& node, Value x, std::int64_t axis) {
  const Value operands[] = {x};
  return b
      .call(node.op(), operands, {{"axes", std::vector<std::int64_t>{axis}}, {"keepdims", false}})
      ->value();
}

Value split_column_sums(ir::GraphBuilder& b, const Node& node, Value x) {
  const Columns columns(node);
  const Parts parts = *parts_of(columns);
  const DType dtype = x.meta().dtype;
  const ReduceOp op = *node.op().lowering.reduce;
  x = converted(b, x, partial_dtype(op, dtype));
  x = reshaped(b, x, {columns.outer, columns.length, columns.inner});
  const SymExpr sizes[] = {parts.count, parts.elements()};
  x = in_parts(b, x, 1, sizes, [&] { return reduction_identity(b, op, x.meta().dtype); });
  x = reduced(
      b, node,
      reshaped(b, x, {columns.outer, parts.count, parts.length, parts.rows * columns.inner}), 2);
  const SymExpr count = parts.count * parts.rows;
  x = reshaped(b, x, {columns.outer, count, columns.inner});
  const bool few = count.is_constant() ? count.constant() <= kFewParts : parts.rows == 1;
  if (few) {
    x = reduced(b, node, x, 1);
  } else {
    x = b.emit("permute", {x}, {{"perm", std::vector<std::int64_t>{0, 2, 1}}});
    x = reduced(b, node, x, 2);
  }
  return reshaped(b, converted(b, x, dtype), node.output().sizes);
}

Value split_places(ir::GraphBuilder& b, const Node& node, Value x, std::int64_t part) {
  const Columns columns(node);
  x = reshaped(b, x, {columns.outer, columns.length, columns.inner});
  const SymExpr sizes[] = {ceildiv(columns.length, part), part};
  x = in_parts(b, x, 1, sizes,
               [&] { return reduction_identity(b, *node.op().lowering.reduce, x.meta().dtype); });
  return reshaped(b, place_in_parts(b, node, x, 1, part), node.output().sizes);
}

}  // namespace

ir::Graph split_columns(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda) return graph;
  Reductions chosen;
  Reductions starved;
  for (const ir::NodePtr& node : graph.nodes()) {
    if (!may_be_split(*node) && !place_part(*node)) continue;
    const Columns columns(*node);
    if (parts_of(columns)) (columns.is_starved() ? starved : chosen).insert(node.get());
  }
  leave_rows_out(chosen, graph, options);
  if (chosen.empty() && starved.empty()) return graph;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        if (!chosen.contains(node.get()) && !starved.contains(node.get())) return std::nullopt;
        if (const auto part = place_part(*node))
          return Values{
              split_places(rewriter.builder(), *node, rewriter.map(node->input(0)), *part)};
        return Values{split_column_sums(rewriter.builder(), *node, rewriter.map(node->input(0)))};
      });
}

ir::Graph separate_runs(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda) return graph;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        if (!may_be_split(*node)) return std::nullopt;
        const Columns columns(*node);
        const bool few = columns.is_starved() && columns.results() < kFewBlocks;
        if (columns.runs < 2 || !few) return std::nullopt;
        std::vector<std::int64_t> axes = reduced_axes(*node);
        const ir::Dims& sizes = node->input(0).meta().sizes;
        const auto is_one = [&](std::int64_t axis) {
          return sizes[static_cast<std::size_t>(axis)].is_constant(1);
        };
        std::erase_if(axes, is_one);
        auto first = axes.end() - 1;
        const auto follows = [&](std::int64_t before, std::int64_t axis) {
          for (std::int64_t d = before + 1; d < axis; ++d)
            if (!is_one(d)) return false;
          return true;
        };
        while (first != axes.begin() && follows(*(first - 1), *first)) --first;
        ir::GraphBuilder& b = rewriter.builder();
        const DType dtype = node->input(0).meta().dtype;
        const DType wide = partial_dtype(*node->op().lowering.reduce, dtype);
        const Value operands[] = {converted(b, rewriter.map(node->input(0)), wide)};
        const Value last =
            b.call(node->op(), operands,
                   {{"axes", std::vector<std::int64_t>(first, axes.end())}, {"keepdims", true}})
                ->value();
        const Value rest[] = {last};
        return Values{converted(b, b.call(node->op(), rest, node->attrs())->value(), dtype)};
      });
}

ir::Graph decompose_column_variances(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda) return graph;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        if (!is_variance(*node) || ir::wants_fallback(*node)) return std::nullopt;
        const Columns columns(*node);
        if (!columns.is_starved() || !parts_of(columns)) return std::nullopt;
        ir::DecomposeContext context(rewriter.builder(), node, rewriter.map(node->inputs()));
        return node->op().lowering.decompose(context);
      });
}

}  // namespace heddle::jit
