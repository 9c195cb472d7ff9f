// packed_bf16_matmul: a product of bf16 with sums of f32, its right operand in panels of columns, two elements of the depth
// side by side.
//
//   a         bf16[..., m, k]
//   panels    bf16[p, q, w, 2]: element (row, column) of the right matrix is element (column / w, row / 2, column % w,
//             row % 2); rows from k on are zeros
//   columns   n, the columns of the right matrix; what lies beyond them in the last panel is not read
//   result    f32[..., m, n]
//
// Kernels may take subnormal elements for 0, and subnormal sums too, as the instruction does. The lowering makes such calls
// from products that have the flag bf16 with constant weights.
//
// Constraints. infer() checks them in this order; tests are named packed_bf16_matmul_c1 ...
//   C1  a and panels are bf16
//   C2  a has at least two dimensions, panels have four, or four behind all but two of a
//   C3  the last dimension of panels is 2
//   C4  q groups of 2 hold k rows, and q - 1 do not
//   C5  p panels of w columns hold n columns, and p - 1 do not
//
// Memory: the result is fresh.
// Source: Intel, "Architecture Instruction Set Extensions": VDPBF16PS multiplies two pairs and adds both products.
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kPair = 2;

std::vector<TensorMeta> infer_packed_bf16_matmul(const InferContext& ctx) {
  constexpr std::string_view kC1 = "C1 a and panels are bf16";
  for (const std::size_t k : {0, 1}) {
    const DType dtype = ctx.meta(k).dtype;
    if (dtype != DType::BF16) ctx.fail_dtype(kC1, "bf16", std::string(name_of(dtype)));
  }
  return panel_product(ctx, kPair, DType::F32);
}

std::vector<Literal> evaluate_packed_bf16_matmul(const EvalContext& ctx) {
  const Literal& a = ctx.inputs[0];
  return {panel_product(a, ctx.inputs[1], DType::F32, ctx.output_sizes())};
}

}  // namespace

OpDef packed_bf16_matmul_op() {
  return {
      .name = "packed_bf16_matmul",
      .operands = {{"a"}, {"panels"}},
      .attrs = {{"columns", AttrKind::Int, {}}},
      .infer = infer_packed_bf16_matmul,
      .evaluate = evaluate_packed_bf16_matmul,
      .lowering = {.nest = "packed_bf16_matmul"},
      .apart = {{1, {1}}},
  };
}

}  // namespace heddle::ir::ops
