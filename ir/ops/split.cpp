// split: one tensor as consecutive windows along an axis.
//
//   x        T[d0 .. dn-1]
//   axis     int; negative counts from the end
//   sizes    symint[m]
//   results  m of them: T[…] whose size along axis is sizes_k
//
// Constraints. infer() checks them in this order; tests are named split_c1 ...
//   C1  axis lies in [-n, n)
//   C2  there is at least one size, and none is negative
//   C3  the sizes add up to d_axis
//
// Memory: every result is a view of the operand.
// Source: ONNX Split-18 once the sizes are resolved.
#include "ir/ops/common.h"
#include "ir/ops/concat_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_split(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const std::int64_t axis = ctx.axis(ctx.integer("axis"), x.rank(), "C1 axis");
  if (ctx.symints("sizes").empty()) ctx.fail_shape("C2 sizes", "at least one size", "[]");
  SymExpr total = 0;
  std::vector<TensorMeta> results;
  for (const SymExpr& size : ctx.symints("sizes")) {
    require_le(ctx, 0, size, "C2 sizes", "sizes of at least 0",
               text_of(seen(ctx.env, ctx.symints("sizes"))));
    total += size;
    results.push_back(x);
    results.back().sizes[axis] = size;
  }
  ctx.require_equal(x.sizes[axis], total, "C3 sum of sizes");
  return results;
}

std::vector<Literal> evaluate_split(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const std::int64_t axis = from_front(ctx.node.integer("axis"), x.rank());
  std::vector<Literal> results;
  std::int64_t start = 0;
  for (const std::int64_t size : ctx.concrete_attr("sizes")) {
    Sizes sizes = x.sizes();
    sizes[axis] = size;
    results.push_back(x.view(sizes, x.strides(), start * x.strides()[axis]));
    start += size;
  }
  return results;
}

std::vector<Value> decompose_split(DecomposeContext& ctx) {
  const Dims& whole = ctx.inputs[0].meta().sizes;
  const std::int64_t axis =
      from_front(ctx.node.integer("axis"), static_cast<std::int64_t>(whole.size()));
  Dims start(whole.size(), 0);
  Dims limit = whole;
  const Dims stride(whole.size(), 1);
  std::vector<Value> results;
  for (const SymExpr& size : ctx.node.symints("sizes")) {
    limit[axis] = start[axis] + size;
    results.push_back(ctx.emit("slice", {ctx.inputs[0]},
                               {{"start", start}, {"limit", limit}, {"stride", stride}}));
    start[axis] = limit[axis];
  }
  return results;
}

}  // namespace

OpDef split_op() {
  return {
      .name = "split",
      .takes_float8 = true,
      .operands = {{"x"}},
      .attrs = {{"axis", AttrKind::Int}, {"sizes", AttrKind::SymInts}},
      .outputs = -1,
      .infer = infer_split,
      .alias = view_of_first,
      .evaluate = evaluate_split,
      .lowering = {.decompose = decompose_split},
  };
}

}  // namespace heddle::ir::ops
