// group_norm: the channels of each group, with all their positions, to mean 0 and variance 1, then
// scaled and shifted by channel. groups = C normalises each channel alone (instance normalisation).
//
//   x         a floating T[N, C, ...]
//   scale     optional, a floating U[C]; absent: 1
//   bias      optional, a floating U[C]; absent: 0
//   groups    how many equal runs of channels C is cut into
//   epsilon   added to the variance under the root
//   result    T[N, C, ...]
//
// f16 and bf16 are computed in f32 and rounded once. The variance has divisor n and is that of the
// deviations from the mean (two passes). A NaN makes its group NaN.
//
// Constraints. infer() checks them in this order; tests are named group_norm_c1 ...
//   C1  x, scale and bias have floating dtypes
//   C2  x has at least two dimensions
//   C3  groups is at least 1
//   C4  the channels C are a multiple of groups
//   C5  scale and bias have sizes [C]
//
// Memory: the result is fresh.
// Source: ONNX GroupNormalization-21, InstanceNormalization-6.
#include "ir/ops/common.h"
#include "ir/ops/norm_ops.h"

namespace heddle::ir::ops {
namespace {

void require_channels(const InferContext& ctx, std::size_t k, const SymExpr& channels) {
  constexpr std::string_view kC5 = "C5 scale and bias have sizes [C]";
  const Dims& sizes = ctx.meta(k).sizes;
  if (sizes.size() != 1)
    ctx.fail_shape(kC5, text_of(seen(ctx.env, Dims{channels})), text_of(seen(ctx.env, sizes)));
  ctx.require_equal(channels, sizes[0], kC5);
}

std::vector<TensorMeta> infer_group_norm(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) {
    if (ctx.has(k)) require_floating(ctx, k, "C1 x, scale and bias have floating dtypes");
  }
  if (x.rank() < 2) {
    ctx.fail_shape("C2 x has at least two dimensions", "sizes [N, C, ...]",
                   text_of(seen(ctx.env, x.sizes)));
  }
  const std::int64_t groups = ctx.integer("groups");
  if (groups < 1) {
    fail_argument(ctx, "C3 groups is at least 1", "1 or more", std::to_string(groups));
  }
  require_multiple(ctx, x.sizes[1], groups, "C4 the channels C are a multiple of groups");
  for (std::size_t k = 1; k < ctx.inputs.size(); ++k) {
    if (ctx.has(k)) require_channels(ctx, k, x.sizes[1]);
  }
  return one(fresh(ctx, x.dtype, x.sizes));
}

std::vector<Literal> evaluate_group_norm(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const std::int64_t groups = ctx.node.integer("groups");
  const std::int64_t channels = x.sizes()[1];
  const AxisCut cut = cut_at(x.sizes(), 1);
  const auto count = static_cast<std::size_t>(channels / groups * cut.inner);
  std::vector<double> values = dense<double>(x);
  for (std::size_t begin = 0; begin < values.size(); begin += count) {
    standardize({values.data() + begin, count}, ctx.node.number("epsilon"));
  }
  for (std::size_t k = 0; k < values.size(); ++k) {
    const std::int64_t channel = static_cast<std::int64_t>(k) / cut.inner % channels;
    if (ctx.has(1)) values[k] *= ctx.inputs[1].at(channel);
    if (ctx.has(2)) values[k] += ctx.inputs[2].at(channel);
  }
  return {literal_of(x.dtype(), x.sizes(), values)};
}

/// A value of sizes [C] as [C, 1, …], to broadcast along the channels of x.
Value emit_by_channel(DecomposeContext& ctx, Value value) {
  Dims sizes(static_cast<std::size_t>(ctx.node.output().rank() - 1), SymExpr(1));
  sizes[0] = ctx.node.output().sizes[1];
  return emit_reshape(ctx, value, std::move(sizes));
}

std::vector<Value> decompose_group_norm(DecomposeContext& ctx) {
  Emitter emit{ctx};
  const TensorMeta& result = ctx.node.output();
  const std::int64_t groups = ctx.node.integer("groups");
  const SymExpr channels = result.sizes[1];
  Dims grouped = {result.sizes[0], groups, floordiv(channels, groups)};
  grouped.insert(grouped.end(), result.sizes.begin() + 2, result.sizes.end());
  const auto rank = static_cast<std::int64_t>(grouped.size());

  const DType dtype = statistics_dtype(result.dtype);
  Value value = emit_reshape(ctx, emit.operand(0, dtype), std::move(grouped));
  value = emit_standardized(emit, value, axes_between(2, rank), ctx.node.number("epsilon"));
  value = emit_reshape(ctx, value, result.sizes);
  if (emit.has(1)) value = emit.mul(value, emit_by_channel(ctx, emit.operand(1, dtype)));
  if (emit.has(2)) value = emit.add(value, emit_by_channel(ctx, emit.operand(2, dtype)));
  return {emit_convert(ctx, value, result.dtype)};
}

}  // namespace

OpDef group_norm_op() {
  return {.name = "group_norm",
          .operands = {{"x"},
                       {"scale", OperandSpec::Arity::Optional},
                       {"bias", OperandSpec::Arity::Optional}},
          .attrs = {{"groups", AttrKind::Int, {}}, {"epsilon", AttrKind::Float, 1e-5}},
          .infer = infer_group_norm,
          .evaluate = evaluate_group_norm,
          .lowering = {.decompose = decompose_group_norm}};
}

}  // namespace heddle::ir::ops
