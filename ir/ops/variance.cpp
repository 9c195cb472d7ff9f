// variance: the mean squared distance from the mean over some axes.
//
//   x           T[d0 .. dn-1]
//   axes        int[]; negative entries count from the end; none reduces nothing
//   keepdims    bool = false: reduced dimensions stay, with size 1
//   correction  int = 0: what is taken off the count, 1 for the sample variance
//   result      T[d without the axes]: sum((x - mean(x))^2) / max(count - correction, 0), so NaN
//               where count <= correction and all distances are 0
//
// f32 is computed in f64, f16 and bf16 in f32, and rounded once.
//
// Constraints. infer() checks them in this order; tests are named variance_c1 ...
//   C1  each axis lies in [-n, n)
//   C2  no axis is named twice
//   C3  T is a floating dtype
//   C4  correction >= 0
//
// Memory: fresh.
// Source: B. P. Welford, Technometrics 4 (1962), for the reduction in one pass; PyTorch var for
// correction.
#include <algorithm>

#include "heddle/error.h"
#include "ir/ops/common.h"
#include "ir/ops/reduce_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_variance(const InferContext& ctx) {
  const DType dtype = ctx.meta(0).dtype;
  TensorMeta result = infer_reduction(ctx, dtype);
  if (!is_floating(dtype)) ctx.fail_dtype("C3 dtype", "a floating dtype", text_of(dtype));
  if (ctx.integer("correction") < 0) {
    throw ArgumentError({.what = "variance: C4 correction",
                         .where = ctx.location.to_string(),
                         .expected = "at least 0",
                         .got = std::to_string(ctx.integer("correction"))});
  }
  return one(std::move(result));
}

double variance(const Literal& x, std::span<const std::int64_t> group, std::int64_t correction) {
  double sum = 0.0;
  for (const std::int64_t p : group) sum += x.at(p);
  const double mean = sum / static_cast<double>(group.size());
  double squares = 0.0;
  for (const std::int64_t p : group) squares += (x.at(p) - mean) * (x.at(p) - mean);
  const auto count = static_cast<std::int64_t>(group.size());
  return squares / static_cast<double>(std::max<std::int64_t>(count - correction, 0));
}

std::vector<Literal> evaluate_variance(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const auto axes = sorted_axes(ctx.node.ints("axes"), x.rank());
  Literal result(x.dtype(), without_axes(x.sizes(), axes, ctx.node.flag("keepdims")));
  std::int64_t position = 0;
  for (const auto& group : groups_of(x.sizes(), axes)) {
    result.set(position++, variance(x, group, ctx.node.integer("correction")));
  }
  return {std::move(result)};
}

std::vector<Value> decompose_variance(DecomposeContext& ctx) {
  const DType dtype = ctx.node.output(0).dtype;
  const DType wide = variance_dtype(dtype);
  const Attr axes = ctx.node.ints("axes");
  const Value x = converted(ctx, ctx.inputs[0], wide);
  const Value mean = ctx.emit("reduce_mean", {x}, {{"axes", axes}, {"keepdims", true}});
  const Value distance = ctx.emit("sub", {x, mean});
  const Value squares = ctx.emit("mul", {distance, distance});
  const Value sum =
      ctx.emit("reduce_sum", {squares}, {{"axes", axes}, {"keepdims", ctx.node.flag("keepdims")}});
  const SymExpr divisor =
      max(combined_count(ctx.node) - SymExpr(ctx.node.integer("correction")), SymExpr(0));
  return {converted(ctx, ctx.emit("div", {sum, size_as(ctx, divisor, wide)}), dtype)};
}

}  // namespace

DType variance_dtype(DType dtype) { return dtype == f32 ? f64 : accumulator_of(dtype); }

OpDef variance_op() {
  return {
      .name = "variance",
      .operands = {{"x"}},
      .attrs = {{"axes", AttrKind::Ints},
                {"keepdims", AttrKind::Bool, Attr(false)},
                {"correction", AttrKind::Int, Attr(std::int64_t{0})}},
      .infer = infer_variance,
      .evaluate = evaluate_variance,
      .lowering = {.reduce = ReduceOp::Welford, .decompose = decompose_variance},
      .reorder = reorder_reduction,
  };
}

}  // namespace heddle::ir::ops
