// argmax, argmin: where along an axis the largest (smallest) element lies.
//
//   x         T[d0 .. dn-1]
//   axis      int; negative counts from the end
//   keepdims  bool = false: the reduced dimension stays, with size 1
//   last      bool = false: of equal elements the last counts instead of the first
//   result    i64[d without axis]; NaN counts as larger (smaller) than every number, and as equal
//             to NaN
//
// Constraints. infer() checks them in this order; tests are named <op>_c1 ...
//   C1  axis lies in [-n, n); so x has at least one dimension
//   C2  T is not bool
//   C3  d_axis >= 1
//
// Memory: fresh.
// Lowering: the reduction finds the first place. For the last, decompose: d_axis - 1 - first place
// in the reversed operand; it makes nothing when the first is wanted.
// Source: ONNX ArgMax-13 (select_last_index); NumPy argmax for NaN.
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/host_scalar.h"
#include "ir/ops/reduce_ops.h"

namespace heddle::ir {
namespace {

std::vector<TensorMeta> infer_argreduce(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const std::int64_t axis = ctx.axis(ctx.integer("axis"), x.rank(), "C1 axis");
  if (x.dtype == DType::Bool) ctx.fail_dtype("C2 dtype", "a number dtype", "bool");
  ops::require_le(ctx, 1, x.sizes[axis], "C3 axis size", "an axis of at least 1 element",
                  seen(ctx.env, x.sizes[axis]).to_string());
  const std::int64_t axes[] = {axis};
  return ops::one(
      ops::fresh(ctx, DType::I64, ops::without_axes(x.sizes, axes, ctx.flag("keepdims"))));
}

/// Whether `a` is to be chosen over `b` wherever they stand.
bool beats(ScalarOp better, const ops::HostScalar& a, const ops::HostScalar& b) {
  if (std::isnan(a.real) || std::isnan(b.real)) return std::isnan(a.real) && !std::isnan(b.real);
  return ops::apply(better, {a, b}).truth();
}

std::int64_t place_of_best(const Literal& x, std::span<const std::int64_t> positions,
                           ScalarOp better, bool last) {
  std::int64_t place = 0;
  for (std::size_t k = 1; k < positions.size(); ++k) {
    const ops::HostScalar next = ops::load(x, positions[k]);
    const ops::HostScalar best = ops::load(x, positions[place]);
    const bool takes = last ? !beats(better, best, next) : beats(better, next, best);
    if (takes) place = static_cast<std::int64_t>(k);
  }
  return place;
}

std::vector<Literal> evaluate_argreduce(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const std::int64_t axes[] = {ops::from_front(ctx.node.integer("axis"), x.rank())};
  const bool largest = ctx.node.op().lowering.reduce == ReduceOp::ArgMax;
  const ScalarOp better = largest ? ScalarOp::Gt : ScalarOp::Lt;
  Literal result(DType::I64, ops::without_axes(x.sizes(), axes, ctx.node.flag("keepdims")));
  std::int64_t position = 0;
  for (const auto& group : ops::groups_of(x.sizes(), axes)) {
    result.set_int(position++, place_of_best(x, group, better, ctx.node.flag("last")));
  }
  return {std::move(result)};
}

std::vector<Value> decompose_argreduce(DecomposeContext& ctx) {
  if (!ctx.node.flag("last")) return {};
  const TensorMeta& x = ctx.inputs[0].meta();
  const std::int64_t axis = ops::from_front(ctx.node.integer("axis"), x.rank());
  const Value reversed =
      ctx.emit("reverse", {ctx.inputs[0]}, {{"axes", std::vector<std::int64_t>{axis}}});
  const Value first =
      ctx.emit(ctx.node.op_name(), {reversed},
               {{"axis", axis}, {"keepdims", ctx.node.flag("keepdims")}, {"last", false}});
  return {ctx.emit("sub", {ops::size_as(ctx, x.sizes[axis] - 1, DType::I64), first})};
}

OpDef arg_reduction(std::string_view name, ReduceOp reduce) {
  return {
      .name = name,
      .operands = {{"x"}},
      .attrs = {{"axis", AttrKind::Int},
                {"keepdims", AttrKind::Bool, Attr(false)},
                {"last", AttrKind::Bool, Attr(false)}},
      .infer = infer_argreduce,
      .evaluate = evaluate_argreduce,
      .lowering = {.reduce = reduce, .decompose = decompose_argreduce},
      .reorder = ops::reorder_reduction,
  };
}

}  // namespace

std::span<const OpDef> argreduce_ops() {
  static const OpDef ops[] = {arg_reduction("argmax", ReduceOp::ArgMax),
                              arg_reduction("argmin", ReduceOp::ArgMin)};
  return ops;
}

}  // namespace heddle::ir
