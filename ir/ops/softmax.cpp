// softmax: exp(x) / sum(exp(x)) along one axis. log_softmax: its logarithm.
//
//   x         a floating T[...], one dimension or more
//   axis      the axis that sums to 1; negative counts from the end
//   result    T[...], the sizes of x
//
// The largest x along the axis is subtracted first, so that no finite x overflows; log_softmax is x
// - max - log(sum(exp(x - max))). f16 and bf16 are computed in f32 and rounded once. A NaN or +inf
// makes its whole row NaN, as does a row of -inf only.
//
// Constraints. infer() checks them in this order; tests are named softmax_c1 ...
//   C1  x has a floating dtype
//   C2  axis lies within the rank of x
//
// Memory: the result is fresh.
// Source: ONNX Softmax-13, LogSoftmax-13.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/ops/common.h"
#include "ir/ops/norm_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_softmax(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  require_floating(ctx, 0, "C1 x has a floating dtype");
  ctx.axis(ctx.integer("axis"), x.rank(), "C2 axis lies within the rank of x");
  return one(fresh(ctx, x.dtype, x.sizes));
}

/// Calls f with each run of elements along the axis, as a vector, and stores what f leaves there.
template <typename F>
std::vector<Literal> along_axis(const EvalContext& ctx, F&& f) {
  const Literal& x = ctx.inputs[0];
  const AxisCut cut = cut_at(x.sizes(), from_front(ctx.node.integer("axis"), x.rank()));
  std::vector<double> values = dense<double>(x);
  std::vector<double> run(static_cast<std::size_t>(cut.length));
  for (std::int64_t o = 0; o < cut.outer; ++o) {
    for (std::int64_t i = 0; i < cut.inner; ++i) {
      for (std::size_t k = 0; k < run.size(); ++k) {
        run[k] = values[cut.at(o, static_cast<std::int64_t>(k), i)];
      }
      f(run);
      for (std::size_t k = 0; k < run.size(); ++k) {
        values[cut.at(o, static_cast<std::int64_t>(k), i)] = run[k];
      }
    }
  }
  return {literal_of(x.dtype(), x.sizes(), values)};
}

/// Subtracts the largest value and returns the sum of exponentials of what is left.
double shift_by_max(std::vector<double>& run) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double value : run) largest = std::isnan(value) ? value : std::max(largest, value);
  double sum = 0;
  for (double& value : run) sum += std::exp(value -= largest);
  return sum;
}

std::vector<Literal> evaluate_softmax(const EvalContext& ctx) {
  return along_axis(ctx, [](std::vector<double>& run) {
    const double sum = shift_by_max(run);
    for (double& value : run) value = std::exp(value) / sum;
  });
}

std::vector<Literal> evaluate_log_softmax(const EvalContext& ctx) {
  return along_axis(ctx, [](std::vector<double>& run) {
    const double log_sum = std::log(shift_by_max(run));
    for (double& value : run) value -= log_sum;
  });
}

std::vector<std::int64_t> axis_of(const DecomposeContext& ctx) {
  return {from_front(ctx.node.integer("axis"), ctx.node.output().rank())};
}

/// x in the dtype of its statistics, less its maximum along the axis.
Value emit_shifted(Emitter& emit) {
  const Value x = emit.operand(0, statistics_dtype(emit.ctx.node.output().dtype));
  return emit.sub(x, emit.reduce("reduce_max", x, axis_of(emit.ctx)));
}

std::vector<Value> decompose_softmax(DecomposeContext& ctx) {
  Emitter emit{ctx};
  const Value exponentials = emit.one_operand("exp", emit_shifted(emit));
  const Value sum = emit.reduce("reduce_sum", exponentials, axis_of(ctx));
  // One division a row: the sum is at least 1, so its reciprocal costs half a unit in the last place.
  const Value scale = emit.div(ctx.scalar(sum.meta().dtype, 1), sum);
  return {emit_convert(ctx, emit.mul(exponentials, scale), ctx.node.output().dtype)};
}

std::vector<Value> decompose_log_softmax(DecomposeContext& ctx) {
  Emitter emit{ctx};
  const Value shifted = emit_shifted(emit);
  const Value sum = emit.reduce("reduce_sum", emit.one_operand("exp", shifted), axis_of(ctx));
  const Value result = emit.sub(shifted, emit.one_operand("log", sum));
  return {emit_convert(ctx, result, ctx.node.output().dtype)};
}

}  // namespace

OpDef softmax_op() {
  return {.name = "softmax",
          .operands = {{"x"}},
          .attrs = {{"axis", AttrKind::Int, std::int64_t{-1}}},
          .infer = infer_softmax,
          .evaluate = evaluate_softmax,
          .lowering = {.decompose = decompose_softmax},
          .reorder = reorder_axes};
}

OpDef log_softmax_op() {
  return {.name = "log_softmax",
          .operands = {{"x"}},
          .attrs = {{"axis", AttrKind::Int, std::int64_t{-1}}},
          .infer = infer_softmax,
          .evaluate = evaluate_log_softmax,
          .lowering = {.decompose = decompose_log_softmax},
          .reorder = reorder_axes};
}

}  // namespace heddle::ir::ops
