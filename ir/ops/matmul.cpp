// matmul: NumPy's matrix product over the last two dimensions, batched over the others.
//
//   a        T[..., m, k] or T[k]
//   b        U[..., k, n] or U[k]
//   result   promote(T, U)[..., m, n]; m is absent when a has one dimension, n when b has one
//
// Leading dimensions broadcast. Operands are converted to the result's dtype before they are
// multiplied. Products are summed in accumulator_of(result dtype): f32 for f16 and bf16; integers
// wrap. The sum over no products (k = 0) is 0.
//
// With tf32 = true operands of f32 may be rounded to tf32 (10 bits of fraction) before they are multiplied; the definition
// does not. With bf16 = true operands of f32 may be rounded to bf16 (7 bits), and subnormal operands and sums taken for 0. With
// int8 = true the elements of a may be rounded to whole multiples of a 127th of the largest magnitude among at most 128
// neighbours in their row.
//
// Constraints. infer() checks them in this order; tests are named matmul_c1 ...
//   C1  a and b are numbers
//   C2  a and b have at least one dimension
//   C3  the inner sizes k agree
//   C4  the leading dimensions broadcast
//   C5  tf32 is for a result of f32
//   C6  bf16 is for a result of f32 or bf16
//   C7  int8 is for a result of f16, bf16 or f32
//
// Memory: the result is fresh.
// Lowering: nest "matmul" takes operands of two or more dimensions and of the result's dtype;
// decompose brings every other call into that form.
// Source: NumPy, "matmul"; ONNX MatMul-13.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/families.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir {
namespace ops {
namespace {

Dims leading(const TensorMeta& meta) {
  const std::size_t kept = meta.sizes.size() < 2 ? 0 : meta.sizes.size() - 2;
  return {meta.sizes.begin(), meta.sizes.begin() + static_cast<std::ptrdiff_t>(kept)};
}

std::vector<TensorMeta> infer_matmul(const InferContext& ctx) {
  const TensorMeta& a = ctx.meta(0);
  const TensorMeta& b = ctx.meta(1);
  require_number(ctx, 0, "C1 a and b are numbers");
  require_number(ctx, 1, "C1 a and b are numbers");
  if (a.rank() == 0 || b.rank() == 0) {
    ctx.fail_shape("C2 a and b have at least one dimension", "sizes [..., m, k] and [..., k, n]",
                   text_of(seen(ctx.env, a.sizes)) + " and " + text_of(seen(ctx.env, b.sizes)));
  }
  const SymExpr& inner = b.rank() == 1 ? b.sizes[0] : b.sizes[b.sizes.size() - 2];
  ctx.require_equal(a.sizes.back(), inner, "C3 the inner sizes agree");
  Dims sizes = ctx.broadcast(leading(a), leading(b), "C4 the leading dimensions broadcast");
  const DType dtype = promote(a.dtype, b.dtype);
  if (ctx.flag("tf32") && dtype != DType::F32)
    ctx.fail_dtype("C5 tf32 is for a result of f32", "f32", std::string(name_of(dtype)));
  if (ctx.flag("bf16") && dtype != DType::F32 && dtype != DType::BF16)
    ctx.fail_dtype("C6 bf16 is for a result of f32 or bf16", "f32 or bf16",
                   std::string(name_of(dtype)));
  if (ctx.flag("int8") && dtype != DType::F32 && dtype != DType::BF16 && dtype != DType::F16)
    ctx.fail_dtype("C7 int8 is for a result of f16, bf16 or f32", "f16, bf16 or f32",
                   std::string(name_of(dtype)));
  if (a.rank() > 1) sizes.push_back(a.sizes[a.sizes.size() - 2]);
  if (b.rank() > 1) sizes.push_back(b.sizes.back());
  return one(fresh(ctx, dtype, std::move(sizes)));
}

/// Sizes of an operand seen as a batch of matrices: a vector is a row on the left, a column on the
/// right.
Sizes as_matrices(const Literal& operand, bool left) {
  Sizes sizes = operand.sizes();
  if (sizes.size() == 1) sizes.insert(left ? sizes.begin() : sizes.end(), 1);
  return sizes;
}

/// The matrices of `operand`, repeated to the leading sizes `batch`.
Literal repeated(const Literal& operand, const Sizes& matrices, const Sizes& batch) {
  Sizes sizes = batch;
  sizes.insert(sizes.end(), matrices.end() - 2, matrices.end());
  return broadcast_to(operand.contiguous().view(matrices, row_major_strides(matrices), 0), sizes);
}

template <typename T>
std::vector<T> products(const std::vector<T>& a, const std::vector<T>& b, std::int64_t batch,
                        std::int64_t m, std::int64_t k, std::int64_t n) {
  std::vector<T> result(static_cast<std::size_t>(batch * m * n));
  for (std::int64_t p = 0; p < batch * m; ++p) {
    for (std::int64_t q = 0; q < k; ++q) {
      const T left = a[static_cast<std::size_t>(p * k + q)];
      const T* right = b.data() + ((p / m) * k + q) * n;
      T* sum = result.data() + p * n;
      for (std::int64_t j = 0; j < n; ++j) sum[j] = plus(sum[j], times(left, right[j]));
    }
  }
  return result;
}

std::vector<Literal> evaluate_matmul(const EvalContext& ctx) {
  const DType dtype = ctx.node.output().dtype;
  return {matrix_product(converted(ctx.inputs[0], dtype), converted(ctx.inputs[1], dtype),
                         ctx.output_sizes())};
}

/// Converts operands to the result's dtype and gives vectors their missing dimension.
///
///   %r = matmul(%x: f16[k], %w: f32[k, n])
///     ==>
///   %r = reshape(matmul(reshape(convert(%x)), %w)) {sizes = [n]}
std::vector<Value> decompose_matmul(DecomposeContext& ctx) {
  const TensorMeta& result = ctx.node.output();
  Value a = emit_convert(ctx, ctx.inputs[0], result.dtype);
  Value b = emit_convert(ctx, ctx.inputs[1], result.dtype);
  if (a.meta().rank() == 1) a = emit_reshape(ctx, a, {1, a.meta().sizes[0]});
  if (b.meta().rank() == 1) b = emit_reshape(ctx, b, {b.meta().sizes[0], 1});
  if (a == ctx.inputs[0] && b == ctx.inputs[1]) return {};
  return {emit_reshape(ctx, ctx.emit("matmul", {a, b}, ctx.node.attrs()), result.sizes)};
}

}  // namespace

Literal matrix_product(const Literal& a, const Literal& b, const Sizes& result) {
  const Sizes left = as_matrices(a, true);
  const Sizes right = as_matrices(b, false);
  const Sizes heads[] = {{left.begin(), left.end() - 2}, {right.begin(), right.end() - 2}};
  const Sizes batch = broadcast_sizes(heads);
  const Literal as = repeated(a, left, batch);
  const Literal bs = repeated(b, right, batch);
  return with_number(a.dtype(), [&]<typename T>() {
    return literal_of(a.dtype(), result,
                      products(dense<T>(as), dense<T>(bs), element_count(batch),
                               left[left.size() - 2], left.back(), right.back()));
  });
}

}  // namespace ops

std::span<const OpDef> matmul_ops() {
  static const OpDef defs[] = {
      {
          .name = "matmul",
          .operands = {{"a"}, {"b"}},
          .attrs = {{"tf32", AttrKind::Bool, false},
                    {"bf16", AttrKind::Bool, false},
                    {"int8", AttrKind::Bool, false}},
          .infer = ops::infer_matmul,
          .evaluate = ops::evaluate_matmul,
          .lowering = {.decompose = ops::decompose_matmul, .nest = "matmul", .library = "matmul"},
          .apart = {{1, {1}}, {2, {2, 2}}},
      },
      ops::dequantised_matmul_op(),
      ops::fixed_bits_matmul_op(),
      ops::grouped_matmul_op(),
      ops::int8_matmul_op(),
      ops::packed_bf16_conv_op(),
      ops::packed_bf16_matmul_op(),
      ops::packed_bits_matmul_op(),
      ops::packed_grouped_matmul_op(),
      ops::packed_int8_conv_op(),
      ops::packed_int8_matmul_op(),
      ops::packed_matmul_op(),
      ops::packed_split_matmul_op(),
      ops::split_byte_pairs_op(),
      ops::byte_panels_op()};
  return defs;
}

}  // namespace heddle::ir
