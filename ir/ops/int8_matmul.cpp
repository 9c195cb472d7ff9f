// int8_matmul: an exact matrix product of bytes, its sums in i32.
//
//   a         T[..., m, k], T being u8 or i8
//   b         U[..., k, n], U being u8 or i8
//   result    i32[..., m, n]
//
// Leading dimensions broadcast as those of matmul. Sums wrap modulo 2^32. The lowering makes such calls from products of
// bytes converted to i32, for devices that multiply bytes.
//
// Constraints. infer() checks them in this order; tests are named int8_matmul_c1 ...
//   C1  a and b are u8 or i8
//   C2  a and b have at least two dimensions
//   C3  the inner sizes k agree
//   C4  the leading dimensions broadcast
//
// Memory: the result is fresh.
// Source: ONNX, "MatMulInteger-10", without zero points.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_int8_matmul(const InferContext& ctx) {
  const TensorMeta& a = ctx.meta(0);
  const TensorMeta& b = ctx.meta(1);
  for (const TensorMeta* operand : {&a, &b})
    if (operand->dtype != DType::U8 && operand->dtype != DType::I8)
      ctx.fail_dtype("C1 a and b are u8 or i8", "u8 or i8", std::string(name_of(operand->dtype)));
  if (a.rank() < 2 || b.rank() < 2) {
    ctx.fail_shape("C2 a and b have at least two dimensions", "sizes [..., m, k] and [..., k, n]",
                   text_of(seen(ctx.env, a.sizes)) + " and " + text_of(seen(ctx.env, b.sizes)));
  }
  ctx.require_equal(a.sizes.back(), b.sizes[b.sizes.size() - 2], "C3 the inner sizes agree");
  Dims sizes = ctx.broadcast(batch_sizes(a), batch_sizes(b), "C4 the leading dimensions broadcast");
  sizes.push_back(a.sizes[a.sizes.size() - 2]);
  sizes.push_back(b.sizes.back());
  return one(fresh(ctx, DType::I32, std::move(sizes)));
}

std::vector<Literal> evaluate_int8_matmul(const EvalContext& ctx) {
  return {matrix_product(converted(ctx.inputs[0], DType::I32), converted(ctx.inputs[1], DType::I32),
                         ctx.output_sizes())};
}

}  // namespace

OpDef int8_matmul_op() {
  return {
      .name = "int8_matmul",
      .operands = {{"a"}, {"b"}},
      .infer = infer_int8_matmul,
      .evaluate = evaluate_int8_matmul,
      .lowering = {.nest = "int8_matmul"},
      .apart = {{1, {1}}, {2, {2, 2}}},
  };
}

}  // namespace heddle::ir::ops
