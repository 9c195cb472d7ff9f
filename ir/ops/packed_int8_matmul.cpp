// packed_int8_matmul: an exact product of bytes, its right operand in panels of columns, four elements of the depth side by side.
//
//   a         u8[..., m, k]
//   panels    i8[p, q, w, 4]: element (row, column) of the right matrix is element (column / w, row / 4, column % w,
//             row % 4); rows from k on are not read as anything but 0
//   pairs_fit bool[]; optional: false. If true, any u8 times each two neighbours of the last dimension of panels, first and second
//             or third and fourth, add up to an i16: kernels may multiply so. Nothing checks it
//   columns   n, the columns of the right matrix; what lies beyond them in the last panel is not read
//   result    i32[..., m, n]
//
// Sums wrap modulo 2^32. The lowering makes such calls from products of bytes converted to i32 with constant weights.
//
// Constraints. infer() checks them in this order; tests are named packed_int8_matmul_c1 ...
//   C1  a is u8 and panels are i8
//   C2  a has at least two dimensions, panels have four
//   C3  the last dimension of panels is 4
//   C4  q groups of 4 hold k rows, and q - 1 do not
//   C5  p panels of w columns hold n columns, and p - 1 do not
//   C6  pairs_fit is a bool without dimensions
//
// Memory: the result is fresh.
// Source: Intel, "Architecture Instruction Set Extensions": VPDPBUSD multiplies four bytes without a sign by four with one.
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kQuad = 4;

std::vector<TensorMeta> infer_packed_int8_matmul(const InferContext& ctx) {
  constexpr std::string_view kC1 = "C1 a is u8 and panels are i8";
  const DType a = ctx.meta(0).dtype;
  const DType panels = ctx.meta(1).dtype;
  if (a != DType::U8) ctx.fail_dtype(kC1, "u8", std::string(name_of(a)));
  if (panels != DType::I8) ctx.fail_dtype(kC1, "i8", std::string(name_of(panels)));
  std::vector<TensorMeta> result = panel_product(ctx, kQuad, DType::I32);
  require_pairs_fit(ctx, 2, "C6 pairs_fit is a bool without dimensions");
  return result;
}

std::vector<Literal> evaluate_packed_int8_matmul(const EvalContext& ctx) {
  return {panel_product(ctx.inputs[0], ctx.inputs[1], DType::I32, ctx.output_sizes())};
}

}  // namespace

OpDef packed_int8_matmul_op() {
  return {
      .name = "packed_int8_matmul",
      .operands = {{"a"}, {"panels"}, {"pairs_fit", OperandSpec::Arity::Optional}},
      .attrs = {{"columns", AttrKind::Int, {}}},
      .infer = infer_packed_int8_matmul,
      .evaluate = evaluate_packed_int8_matmul,
      .lowering = {.nest = "packed_int8_matmul"},
  };
}

}  // namespace heddle::ir::ops
