#include "ir/passes/narrow_products.h"

#include <algorithm>
#include <span>

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

constexpr std::int64_t kMostTerms = 4;
constexpr std::int64_t kMostNarrowColumns = 4;
/// Columns from which on they are lanes.
constexpr std::int64_t kManyColumns = 16;
/// Of matrices of which each batch has its own.
constexpr std::int64_t kFewNumbers = 4;
constexpr std::int64_t kManyRows = 16;

bool is_between(const SymExpr& size, std::int64_t low, std::int64_t high) {
  return size.is_constant() && size.constant() >= low && size.constant() <= high;
}

/// Whether lanes read what lies side by side, or so little that it is read at once. Where each batch has a matrix of its own, few
/// rows by it are gathered from both sides.
bool are_along(const TensorMeta& left, const TensorMeta& right) {
  const bool shared = std::ranges::all_of(std::span(right.sizes).first(right.rank() - 2),
                                          [](const SymExpr& size) { return size.is_constant(1); });
  const SymExpr& rows = left.sizes[left.rank() - 2];
  const std::int64_t area = left.sizes.back().constant() * right.sizes.back().constant();
  return shared || area <= kFewNumbers || rows.is_constant(1) ||
         right.sizes.back().is_constant(1) || (rows.is_constant() && rows.constant() >= kManyRows);
}

bool has_many_columns(const TensorMeta& right) {
  return right.sizes.back().is_constant() && right.sizes.back().constant() >= kManyColumns;
}

bool is_narrow(const Node& node) {
  if (node.op_name() != "matmul" || wants_fallback(node) || !node.after().empty()) return false;
  for (std::string_view rounded : {"tf32", "bf16", "int8"})
    if (node.flag(rounded)) return false;
  const TensorMeta& left = node.input(0).meta();
  const TensorMeta& right = node.input(1).meta();
  const DType dtype = node.output().dtype;
  return (dtype == DType::F32 || dtype == DType::F64) && left.dtype == dtype &&
         right.dtype == dtype && left.rank() >= 2 && right.rank() >= 2 &&
         is_between(left.sizes.back(), 1, kMostTerms) &&
         (has_many_columns(right) ||
          (is_between(right.sizes.back(), 1, kMostNarrowColumns) && are_along(left, right)));
}

/// Element `at` of a dimension, counted from the last one, which stays.
Value one_of(GraphBuilder& builder, Value x, std::size_t from_last, std::int64_t at) {
  const Dims& sizes = x.meta().sizes;
  const std::size_t axis = sizes.size() - from_last;
  Dims start(sizes.size(), 0);
  Dims limit = sizes;
  start[axis] = at;
  limit[axis] = at + 1;
  return builder.emit("slice", {x},
                      {{"start", start}, {"limit", limit}, {"stride", Dims(sizes.size(), 1)}});
}

}  // namespace

Graph narrow_products(const Graph& graph) {
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    if (!is_narrow(*node)) return {};
    GraphBuilder& builder = rewriter.builder();
    const Value left = rewriter.map(node->input(0));
    const Value right = rewriter.map(node->input(1));
    // From 0 on: a sum of products that are all -0 is 0.
    Value sum = builder.scalar(node->output().dtype, 0);
    for (std::int64_t k = 0; k < left.meta().sizes.back().constant(); ++k) {
      const Value term =
          builder.emit("mul", {one_of(builder, left, 1, k), one_of(builder, right, 2, k)});
      sum = builder.emit("add", {sum, term});
    }
    return Values{sum};
  });
}

}  // namespace heddle::ir
