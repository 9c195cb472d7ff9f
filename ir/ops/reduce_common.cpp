#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/reduce_ops.h"

namespace heddle::ir::ops {

TensorMeta infer_reduction(const InferContext& ctx, DType dtype) {
  const TensorMeta& x = ctx.meta(0);
  const auto axes = check_axes(ctx, x.rank(), "C1 axis", "C2 repeated axis");
  return fresh(ctx, dtype, without_axes(x.sizes, axes, ctx.flag("keepdims")));
}

std::vector<std::vector<std::int64_t>> groups_of(const Sizes& sizes,
                                                 std::span<const std::int64_t> sorted_axes) {
  const Sizes result_sizes = without_axes(sizes, sorted_axes, /*keepdims=*/true);
  std::vector<std::vector<std::int64_t>> groups(
      static_cast<std::size_t>(element_count(result_sizes)));
  for (std::int64_t p = 0; p < element_count(sizes); ++p) {
    Sizes index = index_at(p, sizes);
    for (const std::int64_t axis : sorted_axes) index[axis] = 0;
    groups[position_of(index, result_sizes)].push_back(p);
  }
  return groups;
}

SymExpr combined_count(const Node& node) {
  const TensorMeta& x = node.input(0).meta();
  SymExpr count = 1;
  for (const std::int64_t axis : sorted_axes(node.ints("axes"), x.rank())) count *= x.sizes[axis];
  return count;
}

Value size_as(DecomposeContext& ctx, const SymExpr& value, DType dtype) {
  if (value.is_constant()) return ctx.scalar(dtype, static_cast<double>(value.constant()));
  return ctx.emit("convert", {ctx.emit("symint", {}, {{"value", value}})}, {{"dtype", dtype}});
}

Value converted(DecomposeContext& ctx, Value x, DType dtype) {
  return x.meta().dtype == dtype ? x : ctx.emit("convert", {x}, {{"dtype", dtype}});
}

}  // namespace heddle::ir::ops
