// reduce_mean: the sum over some axes divided by how many elements it adds.
//
//   x         T[d0 .. dn-1]
//   axes      int[]; negative entries count from the end; none reduces nothing
//   keepdims  bool = false: reduced dimensions stay, with size 1
//   result    T[d without the axes]; NaN where there is nothing to add
//
// f16 and bf16 are summed and divided in f32, so that a sum past their range does no harm.
//
// Constraints. infer() checks them in this order; tests are named reduce_mean_c1 ...
//   C1  each axis lies in [-n, n)
//   C2  no axis is named twice
//   C3  T is a floating dtype
//
// Memory: fresh.
// Source: ONNX ReduceMean-18; NumPy mean.
#include "ir/ops/common.h"
#include "ir/ops/host_scalar.h"
#include "ir/ops/reduce_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_reduce_mean(const InferContext& ctx) {
  const DType dtype = ctx.meta(0).dtype;
  TensorMeta result = infer_reduction(ctx, dtype);
  if (!is_floating(dtype)) ctx.fail_dtype("C3 dtype", "a floating dtype", text_of(dtype));
  return one(std::move(result));
}

std::vector<Literal> evaluate_reduce_mean(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const auto axes = sorted_axes(ctx.node.ints("axes"), x.rank());
  Literal result(x.dtype(), without_axes(x.sizes(), axes, ctx.node.flag("keepdims")));
  std::int64_t position = 0;
  for (const auto& group : groups_of(x.sizes(), axes)) {
    double sum = 0.0;
    for (const std::int64_t p : group) sum += x.at(p);
    result.set(position++, sum / static_cast<double>(group.size()));
  }
  return {std::move(result)};
}

std::vector<Value> decompose_reduce_mean(DecomposeContext& ctx) {
  const DType dtype = ctx.node.output(0).dtype;
  const DType wide = accumulator_of(dtype);
  const Value sum =
      ctx.emit("reduce_sum", {converted(ctx, ctx.inputs[0], wide)},
               {{"axes", ctx.node.ints("axes")}, {"keepdims", ctx.node.flag("keepdims")}});
  const Value mean = ctx.emit("div", {sum, size_as(ctx, combined_count(ctx.node), wide)});
  return {converted(ctx, mean, dtype)};
}

}  // namespace

OpDef reduce_mean_op() {
  return {
      .name = "reduce_mean",
      .operands = {{"x"}},
      .attrs = {{"axes", AttrKind::Ints}, {"keepdims", AttrKind::Bool, Attr(false)}},
      .infer = infer_reduce_mean,
      .evaluate = evaluate_reduce_mean,
      .lowering = {.decompose = decompose_reduce_mean},
      .reorder = reorder_reduction,
  };
}

}  // namespace heddle::ir::ops
