// packed_bits_matmul: a matrix product by numbers of a few bits with scales, in panels of columns, as kernels read them.
//
//   a         T[..., m, k], T being f16, bf16 or f32
//   words     i32[p, q, w], as bit_panels makes them of a matrix [k, n]: each holds r = 32 / bits rows of its column
//   scale     f16, bf16 or f32 [p, g, w]: of column j in panel j / w
//   zero      i8, i16, f16, bf16 or f32 of these sizes; optional: 0
//   bits      2, 4 or 8
//   columns   n; what lies beyond them in the last panel is of no account
//   group     rows of the matrix that share a row of scale and zero; 0: all
//   tf32      as matmul's
//   result    T[..., m, n] = matmul(a, d), where d[i, j] = (number[i, j] - zero[i / group, j]) * scale[i / group, j]
//
// Sums are f32 and what is multiplied is not rounded before: kernels may add up a times (number - zero) within each group and
// multiply that sum by the scale. An element is off by little more than (k + 2) * 2^-24 times the sum of the magnitudes that
// it adds up, and by the rounding to T. Tensor cores, of CUDA, take d rounded to T, or to tf32 where that is allowed: that is
// 2^-12, 2^-9 or 2^-12 more for f16, bf16 and tf32; where scale or zero is not finite, its column is not, or NaN. The lowering makes such calls from products by constant weights that are dequantised.
//
// Constraints. infer() checks them in this order; tests are named packed_bits_matmul_c1 ...
//   C1   a is f16, bf16 or f32
//   C2   a has at least two dimensions
//   C3   words are i32
//   C4   scale is f16, bf16 or f32, and zero one of these, i8 or i16
//   C5   words, scale and zero have three dimensions
//   C6   bits is 2, 4 or 8
//   C7   q words of r rows are k rows
//   C8   p panels of w columns hold n columns, and p - 1 do not
//   C9   group is 0, or a multiple of r of which k is one
//   C10  scale and zero have p panels of g rows, k / group or one, and w columns
//
// Memory: the result is fresh.
// Source: as dequantised_matmul and packed_matmul; ONNX Runtime's contrib op "MatMulNBits".
#include "ir/ops/bits_matrix.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr BitsMatrix kPackedMatrix{.zero = 3};

std::vector<TensorMeta> infer_packed_bits_matmul(const InferContext& ctx) {
  const TensorMeta& a = ctx.meta(0);
  if (a.dtype != DType::F16 && a.dtype != DType::BF16 && a.dtype != DType::F32)
    ctx.fail_dtype("C1 a is f16, bf16 or f32", "f16, bf16 or f32", std::string(name_of(a.dtype)));
  if (a.rank() < 2)
    ctx.fail_shape("C2 a has at least two dimensions", "sizes [..., m, k]",
                   text_of(seen(ctx.env, a.sizes)));
  kPackedMatrix.require(ctx, a.sizes.back());
  Dims sizes(a.sizes.begin(), a.sizes.end() - 1);
  sizes.push_back(ctx.integer("columns"));
  return one(fresh(ctx, a.dtype, std::move(sizes)));
}

std::vector<Literal> evaluate_packed_bits_matmul(const EvalContext& ctx) {
  const Literal a = converted(ctx.inputs[0], DType::F32);
  const Sizes sizes{a.sizes().back(), ctx.node.integer("columns")};
  const Literal d = literal_of(DType::F32, sizes, kPackedMatrix.values(ctx));
  return {converted(matrix_product(a, d, ctx.output_sizes()), ctx.inputs[0].dtype())};
}

}  // namespace

OpDef packed_bits_matmul_op() {
  return {
      .name = "packed_bits_matmul",
      .operands = {{"a"}, {"words"}, {"scale"}, {"zero", OperandSpec::Arity::Optional}},
      .attrs = {{"bits", AttrKind::Int, {}},
                {"columns", AttrKind::Int, {}},
                {"group", AttrKind::Int, std::int64_t{0}},
                {"tf32", AttrKind::Bool, false}},
      .infer = infer_packed_bits_matmul,
      .evaluate = evaluate_packed_bits_matmul,
      .lowering = {.nest = "packed_bits_matmul"},
      .apart = {{1, {1}}},
  };
}

}  // namespace heddle::ir::ops
