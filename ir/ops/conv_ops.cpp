#include "ir/ops/conv_ops.h"

#include "ir/ops/common.h"
#include "ir/ops/families.h"

namespace heddle::ir {
namespace ops {

std::size_t check_conv_operands(const InferContext& ctx) {
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) {
    if (ctx.has(k)) require_number(ctx, k, "C1 x, w and bias are numbers");
  }
  const TensorMeta& x = ctx.meta(0);
  const TensorMeta& w = ctx.meta(1);
  if (x.rank() < 3 || w.rank() != x.rank()) {
    ctx.fail_shape("C2 x and w have the same number of dimensions, at least three",
                   "x [N, C, ...] and w with as many dimensions",
                   text_of(seen(ctx.env, x.sizes)) + " and " + text_of(seen(ctx.env, w.sizes)));
  }
  const auto spatial = static_cast<std::size_t>(x.rank() - 2);
  check_window(ctx, spatial,
               "C3 strides, pads_low, pads_high and dilations have one entry a spatial dimension",
               "C4 strides and dilations are at least 1, pads at least 0");
  return spatial;
}

std::int64_t check_groups(const InferContext& ctx) {
  const std::int64_t groups = ctx.integer("groups");
  if (groups >= 1) return groups;
  fail_argument(ctx, "C5 groups is at least 1", "1 or more", std::to_string(groups));
}

void check_bias(const InferContext& ctx, const SymExpr& channels, std::string_view label) {
  if (!ctx.has(2)) return;
  const Dims& sizes = ctx.meta(2).sizes;
  if (sizes.size() != 1)
    ctx.fail_shape(label, text_of(seen(ctx.env, Dims{channels})), text_of(seen(ctx.env, sizes)));
  ctx.require_equal(channels, sizes[0], label);
}

DType conv_dtype(const InferContext& ctx) {
  const DType dtype = promote(ctx.meta(0).dtype, ctx.meta(1).dtype);
  return ctx.has(2) ? promote(dtype, ctx.meta(2).dtype) : dtype;
}

std::vector<Value> decompose_conv_dtypes(DecomposeContext& ctx) {
  std::vector<Value> operands;
  bool changed = false;
  for (const Value& operand : ctx.inputs) {
    const bool there = static_cast<bool>(operand);
    operands.push_back(there ? emit_convert(ctx, operand, ctx.node.output().dtype) : operand);
    changed = changed || operands.back() != operand;
  }
  if (!changed) return {};
  return {ctx.builder.call(ctx.node.op(), operands, ctx.node.attrs())->value()};
}

}  // namespace ops

std::span<const OpDef> conv_ops() {
  static const OpDef defs[] = {ops::conv_op(), ops::conv_transpose_op(), ops::int8_conv_op()};
  return defs;
}

}  // namespace heddle::ir
