// packed_int8_conv: an exact convolution of bytes with the channels last, its weights in panels as those of packed_int8_matmul.
//
//   x                     u8[n, in..., c], one to any number of spatial dimensions
//   panels                i8[p, q, w, 4]: the matrix [taps * c / groups, columns] that a window is multiplied by, tap behind
//                         tap in row-major order of the kernel
//   zero                  u8[]: what lies outside of x
//   pairs_fit             as that of packed_int8_matmul
//   columns               of the matrix: channels of the result
//   groups                each has as many of x's channels, and of the columns, for which it has panels of its own
//   align                 the taps along the last dimension, which lie behind each other in panels, begin at a multiple of so many
//                         rows of the matrix, those between them 0
//   kernel, strides,
//   pads_low, pads_high,
//   dilations             one entry a spatial dimension; see window.h
//   result                i32[n, out..., columns]
//
// Sums wrap modulo 2^32. The lowering makes such calls from convolutions of quantised tensors with constant weights.
//
// Constraints. infer() checks them in this order; tests are named packed_int8_conv_c1 ...
//   C1  x and zero are u8 and panels are i8
//   C2  x has at least three dimensions, panels have four, zero has none
//   C3  kernel has one entry a spatial dimension, 1 or more
//   C4  strides, pads_low, pads_high and dilations have one entry a spatial dimension
//   C5  strides and dilations are at least 1, pads at least 0
//   C6  the last dimension of panels is 4
//   C7  groups is at least 1 and divides c and columns
//   C8  align is at least 1, q groups of 4 hold a window, and q - 1 do not
//   C9  each group's share of the p panels of w columns holds its columns, and one less does not
//   C10 the kernel fits into the padded input
//   C11 pairs_fit is a bool without dimensions
//
// Memory: the result is fresh.
// Source: as packed_int8_matmul.
#include "ir/ops/common.h"
#include "ir/ops/matmul_ops.h"
#include "ir/ops/panel_conv.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kTapGroup = 4;

void check_dtypes(const InferContext& ctx) {
  constexpr std::string_view kC1 = "C1 x and zero are u8 and panels are i8";
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    const DType wanted = k == 1 ? DType::I8 : DType::U8;
    const DType got = ctx.meta(k).dtype;
    if (got != wanted) ctx.fail_dtype(kC1, std::string(name_of(wanted)), std::string(name_of(got)));
  }
}

void check_ranks(const InferContext& ctx) {
  const bool right = ctx.meta(0).rank() >= 3 && ctx.meta(1).rank() == 4 && ctx.meta(2).rank() == 0;
  if (right) return;
  ctx.fail_shape("C2 x has at least three dimensions, panels have four, zero has none",
                 "sizes [n, in..., c], [p, q, w, 4] and []",
                 text_of(ctx.meta(0).sizes) + ", " + text_of(ctx.meta(1).sizes) + " and " +
                     text_of(ctx.meta(2).sizes));
}

std::vector<TensorMeta> infer_packed_int8_conv(const InferContext& ctx) {
  check_dtypes(ctx);
  check_ranks(ctx);
  std::vector<TensorMeta> result = panel_conv(ctx, kTapGroup, DType::I32);
  require_pairs_fit(ctx, 3, "C11 pairs_fit is a bool without dimensions");
  return result;
}

std::vector<Literal> evaluate_packed_int8_conv(const EvalContext& ctx) {
  return {panel_conv_sums(ctx, ctx.inputs[2].at_int(0))};
}

}  // namespace

OpDef packed_int8_conv_op() {
  return {
      .name = "packed_int8_conv",
      .operands = {{"x"}, {"panels"}, {"zero"}, {"pairs_fit", OperandSpec::Arity::Optional}},
      .attrs = panel_conv_attrs(),
      .infer = infer_packed_int8_conv,
      .evaluate = evaluate_packed_int8_conv,
      .lowering = {.nest = "packed_int8_conv"},
      .apart = {{Apart::kAllButFirst, {Apart::kAllButFirst}}},
  };
}

}  // namespace heddle::ir::ops
