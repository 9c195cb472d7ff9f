// reverse: elements in opposite order along some axes.
//
//   x       T[d0 .. dn-1]
//   axes    int[]; negative entries count from the end
//   result  T[d0 .. dn-1]; along each named axis element i is x's d - 1 - i
//
// Constraints. infer() checks them in this order; tests are named reverse_c1 ...
//   C1  each axis lies in [-n, n)
//   C2  no axis is named twice
//
// Memory: a view of the operand with negative strides, which starts at x's last element.
// Source: StableHLO spec, "reverse".
#include "ir/ops/common.h"
#include "ir/ops/view_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_reverse(const InferContext& ctx) {
  TensorMeta result = ctx.meta(0);
  for (const std::int64_t axis : check_axes(ctx, result.rank(), "C1 axis", "C2 repeated axis")) {
    result.strides[axis] = -result.strides[axis];
  }
  return one(std::move(result));
}

std::vector<Literal> evaluate_reverse(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  Sizes strides = x.strides();
  std::int64_t offset = 0;
  for (const std::int64_t axis : sorted_axes(ctx.node.ints("axes"), x.rank())) {
    if (x.sizes()[axis] > 0) offset += strides[axis] * (x.sizes()[axis] - 1);
    strides[axis] = -strides[axis];
  }
  return {x.view(x.sizes(), strides, offset)};
}

std::vector<SymExpr> view_reverse(const Node& node, std::span<const SymExpr> index) {
  const Dims& sizes = node.output(0).sizes;
  std::vector<SymExpr> mapped(index.begin(), index.end());
  for (const std::int64_t axis : sorted_axes(node.ints("axes"), node.output(0).rank())) {
    mapped[axis] = sizes[axis] - 1 - index[axis];
  }
  return mapped;
}

}  // namespace

OpDef reverse_op() {
  return {
      .name = "reverse",
      .takes_float8 = true,
      .operands = {{"x"}},
      .attrs = {{"axes", AttrKind::Ints}},
      .infer = infer_reverse,
      .alias = view_of_first,
      .evaluate = evaluate_reverse,
      .lowering = {.view = view_reverse},
      .reorder = reorder_axes,
  };
}

}  // namespace heddle::ir::ops
