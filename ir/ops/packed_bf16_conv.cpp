// packed_bf16_conv: a convolution of bf16 with the channels last and sums of f32, its weights in panels as those of packed_bf16_matmul.
//
//   x                     bf16[n, in..., c], one to any number of spatial dimensions
//   panels                bf16[p, q, w, 2]: the matrix [taps * c / groups, columns] that a window is multiplied by, tap behind
//                         tap in row-major order of the kernel
//   columns               of the matrix: channels of the result
//   groups                each has as many of x's channels, and of the columns, for which it has panels of its own
//   align                 the taps along the last dimension, which lie behind each other in panels, begin at a multiple of so many
//                         rows of the matrix, those between them 0
//   kernel, strides,
//   pads_low, pads_high,
//   dilations             one entry a spatial dimension; see window.h
//   result                f32[n, out..., columns]; what lies outside of x counts 0
//
// Kernels may take subnormal elements for 0, and subnormal sums too, as the instruction does. The lowering makes such calls from
// convolutions that have the flag bf16 with constant weights.
//
// Constraints. infer() checks them in this order; tests are named packed_bf16_conv_c1 ...
//   C1  x and panels are bf16
//   C2  x has at least three dimensions, panels have four
//   C3  kernel has one entry a spatial dimension, 1 or more
//   C4  strides, pads_low, pads_high and dilations have one entry a spatial dimension
//   C5  strides and dilations are at least 1, pads at least 0
//   C6  the last dimension of panels is 2
//   C7  groups is at least 1 and divides c and columns
//   C8  align is at least 1, q groups of 2 hold a window, and q - 1 do not
//   C9  each group's share of the p panels of w columns holds its columns, and one less does not
//   C10 the kernel fits into the padded input
//
// Memory: the result is fresh.
// Source: as packed_bf16_matmul.
#include "ir/ops/common.h"
#include "ir/ops/matmul_ops.h"
#include "ir/ops/panel_conv.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kTapPair = 2;

std::vector<TensorMeta> infer_packed_bf16_conv(const InferContext& ctx) {
  for (const std::size_t k : {0, 1}) {
    const DType dtype = ctx.meta(k).dtype;
    if (dtype != DType::BF16)
      ctx.fail_dtype("C1 x and panels are bf16", "bf16", std::string(name_of(dtype)));
  }
  if (ctx.meta(0).rank() < 3 || ctx.meta(1).rank() != 4)
    ctx.fail_shape("C2 x has at least three dimensions, panels have four",
                   "sizes [n, in..., c] and [p, q, w, 2]",
                   text_of(ctx.meta(0).sizes) + " and " + text_of(ctx.meta(1).sizes));
  return panel_conv(ctx, kTapPair, DType::F32);
}

std::vector<Literal> evaluate_packed_bf16_conv(const EvalContext& ctx) {
  return {panel_conv_sums(ctx, 0)};
}

}  // namespace

OpDef packed_bf16_conv_op() {
  return {
      .name = "packed_bf16_conv",
      .operands = {{"x"}, {"panels"}},
      .attrs = panel_conv_attrs(),
      .infer = infer_packed_bf16_conv,
      .evaluate = evaluate_packed_bf16_conv,
      .lowering = {.nest = "packed_bf16_conv"},
      .apart = {{Apart::kAllButFirst, {Apart::kAllButFirst}}},
  };
}

}  // namespace heddle::ir::ops
