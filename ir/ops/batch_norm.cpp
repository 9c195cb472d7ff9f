// batch_norm: each channel shifted and scaled by given statistics.
//
//   x                        a floating T[N, C, ...]
//   scale, bias, mean, var   floating [C]
//   epsilon                  added to var under the root
//   result                   T[N, C, ...] = (x - mean) / sqrt(var + epsilon) * scale + bias
//
// Computed as x * a + b with a = scale / sqrt(var + epsilon) and b = bias - mean * a, which
// constant folding turns into two vectors. In the widest of the operands' dtypes, at least f32;
// rounded once.
//
// Constraints. infer() checks them in this order; tests are named batch_norm_c1 ...
//   C1  all operands have floating dtypes
//   C2  x has at least two dimensions
//   C3  scale, bias, mean and var have sizes [C]
//
// Memory: the result is fresh.
// Source: ONNX BatchNormalization-15 in inference.
#include <cmath>
#include <tuple>

#include "ir/ops/common.h"
#include "ir/ops/norm_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_batch_norm(const InferContext& ctx) {
  constexpr std::string_view kC3 = "C3 scale, bias, mean and var have sizes [C]";
  const TensorMeta& x = ctx.meta(0);
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) {
    require_floating(ctx, k, "C1 all operands have floating dtypes");
  }
  if (x.rank() < 2) {
    ctx.fail_shape("C2 x has at least two dimensions", "sizes [N, C, ...]",
                   text_of(seen(ctx.env, x.sizes)));
  }
  for (std::size_t k = 1; k < ctx.inputs.size(); ++k) {
    const Dims& sizes = ctx.meta(k).sizes;
    if (sizes.size() != 1)
      ctx.fail_shape(kC3, text_of(seen(ctx.env, Dims{x.sizes[1]})), text_of(seen(ctx.env, sizes)));
    ctx.require_equal(x.sizes[1], sizes[0], kC3);
  }
  return one(fresh(ctx, x.dtype, x.sizes));
}

std::vector<Literal> evaluate_batch_norm(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const AxisCut cut = cut_at(x.sizes(), 1);
  std::vector<double> values = dense<double>(x);
  for (std::size_t k = 0; k < values.size(); ++k) {
    const std::int64_t channel = static_cast<std::int64_t>(k) / cut.inner % cut.length;
    const double root = std::sqrt(ctx.inputs[4].at(channel) + ctx.node.number("epsilon"));
    const double standard = (values[k] - ctx.inputs[3].at(channel)) / root;
    values[k] = standard * ctx.inputs[1].at(channel) + ctx.inputs[2].at(channel);
  }
  return {literal_of(x.dtype(), x.sizes(), values)};
}

std::vector<Value> decompose_batch_norm(DecomposeContext& ctx) {
  Emitter emit{ctx};
  const TensorMeta& result = ctx.node.output();
  DType dtype = statistics_dtype(result.dtype);
  for (const Value& operand : ctx.inputs) dtype = promote(dtype, operand.meta().dtype);
  std::vector<Value> operands;
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) operands.push_back(emit.operand(k, dtype));
  const auto& [x, scale, bias, mean, variance] =
      std::tie(operands[0], operands[1], operands[2], operands[3], operands[4]);
  const Value shifted = emit.add_number(variance, ctx.node.number("epsilon"));
  const Value a = emit.mul(scale, emit.one_operand("rsqrt", shifted));
  const Value b = emit.sub(bias, emit.mul(mean, a));
  Dims by_channel(result.sizes.size() - 1, SymExpr(1));
  by_channel[0] = result.sizes[1];
  const Value scaled = emit.mul(x, emit_reshape(ctx, a, by_channel));
  return {emit_convert(ctx, emit.add(scaled, emit_reshape(ctx, b, by_channel)), result.dtype)};
}

}  // namespace

OpDef batch_norm_op() {
  return {.name = "batch_norm",
          .operands = {{"x"}, {"scale"}, {"bias"}, {"mean"}, {"var"}},
          .attrs = {{"epsilon", AttrKind::Float, 1e-5}},
          .infer = infer_batch_norm,
          .evaluate = evaluate_batch_norm,
          .lowering = {.decompose = decompose_batch_norm}};
}

}  // namespace heddle::ir::ops
