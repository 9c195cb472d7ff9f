// What the normalising ops share: where their statistics are computed and how they decompose.
#pragma once

#include <span>
#include <vector>

#include "ir/ops/dense.h"

namespace heddle::ir::ops {

OpDef softmax_op();
OpDef log_softmax_op();
OpDef layer_norm_op();
OpDef rms_norm_op();
OpDef group_norm_op();
OpDef batch_norm_op();

/// The dtype statistics are computed in: f32 for f16 and bf16, else the dtype itself.
inline DType statistics_dtype(DType dtype) { return accumulator_of(dtype); }

/// Names for the ops that decompositions are written with.
struct Emitter {
  DecomposeContext& ctx;

  Value sub(Value a, Value b) { return ctx.emit("sub", {a, b}); }
  Value add(Value a, Value b) { return ctx.emit("add", {a, b}); }
  Value mul(Value a, Value b) { return ctx.emit("mul", {a, b}); }
  Value div(Value a, Value b) { return ctx.emit("div", {a, b}); }
  Value one_operand(std::string_view op, Value a) { return ctx.emit(op, {a}); }
  Value add_number(Value a, double number) { return add(a, ctx.scalar(a.meta().dtype, number)); }
  /// A reduction that keeps its axes with size 1.
  Value reduce(std::string_view op, Value a, std::vector<std::int64_t> axes) {
    return ctx.emit(op, {a}, {{"axes", std::move(axes)}, {"keepdims", true}});
  }
  /// Operand k in dtype `dtype`.
  Value operand(std::size_t k, DType dtype) { return emit_convert(ctx, ctx.inputs[k], dtype); }
  bool has(std::size_t k) const { return k < ctx.inputs.size() && ctx.inputs[k]; }
};

/// Axes first … last - 1.
std::vector<std::int64_t> axes_between(std::int64_t first, std::int64_t last);

/// value - mean, over `axes`, times 1 / sqrt(variance + epsilon). Mean first, then the mean of
/// squared deviations: a mean far from zero costs no digits but those of its own rounding.
Value emit_standardized(Emitter& emit, Value value, const std::vector<std::int64_t>& axes,
                        double epsilon);

/// The same on the host, in double, for one run of values.
void standardize(std::span<double> values, double epsilon);

}  // namespace heddle::ir::ops
