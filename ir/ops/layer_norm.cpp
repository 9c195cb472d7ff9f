// layer_norm: each block of trailing dimensions to mean 0 and variance 1, then scaled and shifted.
// rms_norm: each block divided by its root mean square, then scaled.
//
//   x         a floating T[d0 .. dn-1]
//   scale     optional, a floating U that broadcasts to the normalised sizes [d_axis .. dn-1];
//             absent: 1
//   bias      optional, likewise; absent: 0. layer_norm only
//   axis      the first normalised axis; negative counts from the end
//   epsilon   added to the variance, or to the mean square, under the root
//   result    T[d0 .. dn-1]
//
//   layer_norm = (x - mean) / sqrt(variance + epsilon) * scale + bias, variance with divisor n
//   rms_norm   = x / sqrt(mean(x * x) + epsilon) * scale
//
// f16 and bf16 are computed in f32 and rounded once, the scale and bias included. The variance is
// that of the deviations from the mean (two passes). A NaN makes its block NaN.
//
// Constraints. infer() checks them in this order; tests are named layer_norm_c1 ...
//   C1  x, scale and bias have floating dtypes
//   C2  axis lies within the rank of x
//   C3  scale and bias broadcast to the normalised sizes
//
// Memory: the result is fresh.
// Source: ONNX LayerNormalization-17, RMSNormalization-23.
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/norm_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_layer_norm(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) {
    if (ctx.has(k)) require_floating(ctx, k, "C1 x, scale and bias have floating dtypes");
  }
  const std::int64_t axis =
      ctx.axis(ctx.integer("axis"), x.rank(), "C2 axis lies within the rank of x");
  const Dims normalised(x.sizes.begin() + axis, x.sizes.end());
  for (std::size_t k = 1; k < ctx.inputs.size(); ++k) {
    if (!ctx.has(k)) continue;
    require_broadcast_to(ctx, ctx.meta(k).sizes, normalised,
                         "C3 scale and bias broadcast to the normalised sizes");
  }
  return one(fresh(ctx, x.dtype, x.sizes));
}

/// Values of operand k repeated to `sizes`; `absent` everywhere without that operand.
std::vector<double> repeated(const EvalContext& ctx, std::size_t k, const Sizes& sizes,
                             double absent) {
  if (ctx.has(k)) return dense<double>(broadcast_to(ctx.inputs[k], sizes));
  return std::vector<double>(static_cast<std::size_t>(element_count(sizes)), absent);
}

void divide_by_rms(std::span<double> values, double epsilon) {
  double mean_square = 0;
  for (const double value : values) {
    mean_square += value * value / static_cast<double>(values.size());
  }
  for (double& value : values) value /= std::sqrt(mean_square + epsilon);
}

std::vector<Literal> evaluate_with(const EvalContext& ctx,
                                   void (*normalise)(std::span<double>, double)) {
  const Literal& x = ctx.inputs[0];
  const auto axis = from_front(ctx.node.integer("axis"), x.rank());
  const Sizes block(x.sizes().begin() + axis, x.sizes().end());
  const auto count = static_cast<std::size_t>(element_count(block));
  const std::vector<double> scale = repeated(ctx, 1, block, 1.0);
  const std::vector<double> bias = repeated(ctx, 2, block, 0.0);
  std::vector<double> values = dense<double>(x);
  for (std::size_t begin = 0; begin < values.size(); begin += count) {
    const std::span<double> run(values.data() + begin, count);
    normalise(run, ctx.node.number("epsilon"));
    for (std::size_t k = 0; k < count; ++k) run[k] = run[k] * scale[k] + bias[k];
  }
  return {literal_of(x.dtype(), x.sizes(), values)};
}

std::vector<Literal> evaluate_layer_norm(const EvalContext& ctx) {
  return evaluate_with(ctx, standardize);
}

std::vector<Literal> evaluate_rms_norm(const EvalContext& ctx) {
  return evaluate_with(ctx, divide_by_rms);
}

std::vector<std::int64_t> normalised_axes(const DecomposeContext& ctx) {
  const std::int64_t rank = ctx.node.output().rank();
  return axes_between(from_front(ctx.node.integer("axis"), rank), rank);
}

/// value * scale + bias, as far as they are there, in the dtype of the result.
std::vector<Value> emit_affine(Emitter& emit, Value value) {
  const DType dtype = value.meta().dtype;
  if (emit.has(1)) value = emit.mul(value, emit.operand(1, dtype));
  if (emit.has(2)) value = emit.add(value, emit.operand(2, dtype));
  return {emit_convert(emit.ctx, value, emit.ctx.node.output().dtype)};
}

std::vector<Value> decompose_layer_norm(DecomposeContext& ctx) {
  Emitter emit{ctx};
  const Value x = emit.operand(0, statistics_dtype(ctx.node.output().dtype));
  return emit_affine(emit,
                     emit_standardized(emit, x, normalised_axes(ctx), ctx.node.number("epsilon")));
}

std::vector<Value> decompose_rms_norm(DecomposeContext& ctx) {
  Emitter emit{ctx};
  const Value x = emit.operand(0, statistics_dtype(ctx.node.output().dtype));
  const Value mean_square = emit.reduce("reduce_mean", emit.mul(x, x), normalised_axes(ctx));
  const Value shifted = emit.add_number(mean_square, ctx.node.number("epsilon"));
  return emit_affine(emit, emit.mul(x, emit.one_operand("rsqrt", shifted)));
}

std::vector<AttrSpec> attributes() {
  return {{"axis", AttrKind::Int, std::int64_t{-1}}, {"epsilon", AttrKind::Float, 1e-5}};
}

}  // namespace

OpDef layer_norm_op() {
  return {.name = "layer_norm",
          .operands = {{"x"},
                       {"scale", OperandSpec::Arity::Optional},
                       {"bias", OperandSpec::Arity::Optional}},
          .attrs = attributes(),
          .infer = infer_layer_norm,
          .evaluate = evaluate_layer_norm,
          .lowering = {.decompose = decompose_layer_norm}};
}

OpDef rms_norm_op() {
  return {.name = "rms_norm",
          .operands = {{"x"}, {"scale", OperandSpec::Arity::Optional}},
          .attrs = attributes(),
          .infer = infer_layer_norm,
          .evaluate = evaluate_rms_norm,
          .lowering = {.decompose = decompose_rms_norm}};
}

}  // namespace heddle::ir::ops
