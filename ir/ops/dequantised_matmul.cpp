// dequantised_matmul: a matrix product by a matrix that is stored as bytes.
//
//   a         T[..., m, k], T being f16, bf16 or f32
//   b         U[..., k, n], U being u8 or i8
//   scale     f16, bf16 or f32 [..., g, c], of b's rank; c is n or 1, leading sizes are those of b or 1
//   zero      U or i32, of such sizes; optional: 0. Within the range of U
//   group     rows of b that share a row of scale and zero, of which there are g = k / group; these may have one row too, for
//             all, and have where it is 0
//   tf32      as matmul's
//   result    T[..., m, n] = matmul(a, d), where d[i, j] = (b[i, j] - zero[i / group, j]) * scale[i / group, j], multiplied in
//             f32 and rounded to T
//
// Leading dimensions broadcast as those of matmul. The lowering makes such calls from products of what is dequantised, for
// devices that read bytes on the way into their registers.
//
// Constraints. infer() checks them in this order; tests are named dequantised_matmul_c1 ...
//   C1  a is f16, bf16 or f32
//   C2  b is u8 or i8
//   C3  scale is f16, bf16 or f32
//   C4  zero is of b's dtype or i32
//   C5  a and b have at least two dimensions
//   C6  the inner sizes k agree
//   C7  the leading dimensions broadcast
//   C8  scale and zero have b's rank, and sizes that are b's or 1, but for that of the depth
//   C9  group is at least 0, k is a multiple of it, and scale and zero have k / group rows or one
//
// Memory: the result is fresh.
// Source: ONNX, "DequantizeLinear-21", and "MatMul-13".
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::size_t kScale = 2;
constexpr std::size_t kZero = 3;

void require_dtypes(const InferContext& ctx) {
  const auto name = [&](std::size_t k) { return std::string(name_of(ctx.meta(k).dtype)); };
  const DType b = ctx.meta(1).dtype;
  if (!is_scale(ctx.meta(0).dtype))
    ctx.fail_dtype("C1 a is f16, bf16 or f32", "f16, bf16 or f32", name(0));
  if (b != DType::U8 && b != DType::I8) ctx.fail_dtype("C2 b is u8 or i8", "u8 or i8", name(1));
  if (!is_scale(ctx.meta(kScale).dtype))
    ctx.fail_dtype("C3 scale is f16, bf16 or f32", "f16, bf16 or f32", name(kScale));
  if (ctx.has(kZero) && ctx.meta(kZero).dtype != b && ctx.meta(kZero).dtype != DType::I32)
    ctx.fail_dtype("C4 zero is of b's dtype or i32", name(1) + " or i32", name(kZero));
}

constexpr std::string_view kC9 =
    "C9 group is at least 0, k is a multiple of it, and scale and zero have k / group rows or one";

/// C8 and C9 of scale or zero.
void require_beside(const InferContext& ctx, const Dims& b, const SymExpr& groups, std::size_t k) {
  constexpr std::string_view kC8 =
      "C8 scale and zero have b's rank, and sizes that are b's or 1, but for that of the depth";
  const Dims& sizes = ctx.meta(k).sizes;
  if (sizes.size() != b.size()) ctx.fail_shape(kC8, text_of(b), text_of(sizes));
  const std::size_t depth = b.size() - 2;
  for (std::size_t d = 0; d < b.size(); ++d)
    if (!sizes[d].is_constant(1))
      ctx.require_equal(d == depth ? groups : b[d], sizes[d], d == depth ? kC9 : kC8);
}

SymExpr groups_of(const InferContext& ctx, const SymExpr& depth) {
  const std::int64_t group = ctx.integer("group");
  if (group < 0) fail_argument(ctx, kC9, "0 or more", std::to_string(group));
  if (group == 0) return 1;
  require_multiple(ctx, depth, group, kC9);
  return floordiv(depth, group);
}

std::vector<TensorMeta> infer_dequantised_matmul(const InferContext& ctx) {
  require_dtypes(ctx);
  const TensorMeta& a = ctx.meta(0);
  const TensorMeta& b = ctx.meta(1);
  if (a.rank() < 2 || b.rank() < 2) {
    ctx.fail_shape("C5 a and b have at least two dimensions", "sizes [..., m, k] and [..., k, n]",
                   text_of(seen(ctx.env, a.sizes)) + " and " + text_of(seen(ctx.env, b.sizes)));
  }
  ctx.require_equal(a.sizes.back(), b.sizes[b.sizes.size() - 2], "C6 the inner sizes agree");
  Dims sizes = ctx.broadcast(batch_sizes(a), batch_sizes(b), "C7 the leading dimensions broadcast");
  const SymExpr groups = groups_of(ctx, a.sizes.back());
  require_beside(ctx, b.sizes, groups, kScale);
  if (ctx.has(kZero)) require_beside(ctx, b.sizes, groups, kZero);
  sizes.push_back(a.sizes[a.sizes.size() - 2]);
  sizes.push_back(b.sizes.back());
  return one(fresh(ctx, a.dtype, std::move(sizes)));
}

/// The element of `part` for each one of a matrix of these sizes.
std::vector<double> spread(const Literal& part, const Sizes& sizes) {
  const Literal row_major = part.contiguous();
  const Sizes strides = row_major_strides(row_major.sizes());
  const std::size_t depth = sizes.size() - 2;
  std::vector<double> all;
  if (element_count(sizes) == 0) return all;
  Sizes index(sizes.size(), 0);
  do {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const std::int64_t size = row_major.sizes()[d];
      if (size != 1) at += strides[d] * (d == depth ? index[d] / (sizes[d] / size) : index[d]);
    }
    all.push_back(row_major.at(at));
  } while (next_index(index, sizes));
  return all;
}

Literal dequantised(const EvalContext& ctx) {
  const Literal& b = ctx.inputs[1];
  std::vector<double> values = dense<double>(b);
  const std::vector<double> scales = spread(ctx.inputs[kScale], b.sizes());
  std::vector<double> zeros(values.size());
  if (ctx.has(kZero)) zeros = spread(ctx.inputs[kZero], b.sizes());
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = static_cast<float>(values[k] - zeros[k]) * static_cast<float>(scales[k]);
  return literal_of(ctx.node.output().dtype, b.sizes(), values);
}

std::vector<Literal> evaluate_dequantised_matmul(const EvalContext& ctx) {
  return {matrix_product(ctx.inputs[0], dequantised(ctx), ctx.output_sizes())};
}

/// Of the matrix, groups of rows apart from what is in them: [..., k, n] ==> [..., k / group, group, n]
Dims parted(const Dims& b, std::int64_t group) {
  Dims sizes = b;
  sizes[b.size() - 2] = group;
  sizes.insert(sizes.end() - 2, floordiv(b[b.size() - 2], group));
  return sizes;
}

/// `value` [..., k, n] and `part` under `op`.
Value with_groups(DecomposeContext& ctx, std::string_view op, Value value, Value part) {
  const Dims whole = value.meta().sizes;
  Dims of_part = part.meta().sizes;
  const std::int64_t group = ctx.node.integer("group");
  if (group == 0 || of_part[of_part.size() - 2].is_constant(1))
    return ctx.emit(op, {value, part}, {});
  of_part.insert(of_part.end() - 1, SymExpr(1));
  const Value made = ctx.emit(
      op, {emit_reshape(ctx, value, parted(whole, group)), emit_reshape(ctx, part, of_part)}, {});
  return emit_reshape(ctx, made, whole);
}

/// %d = convert(mul(convert(sub(convert(%b), %zero)), %scale)); %r = matmul(%a, %d)
std::vector<Value> decompose_dequantised_matmul(DecomposeContext& ctx) {
  Value wide = emit_convert(ctx, ctx.inputs[1], DType::I32);
  if (ctx.inputs.size() > kZero && ctx.inputs[kZero])
    wide = with_groups(ctx, "sub", wide, emit_convert(ctx, ctx.inputs[kZero], DType::I32));
  const Value real = emit_convert(ctx, wide, DType::F32);
  const Value scaled =
      with_groups(ctx, "mul", real, emit_convert(ctx, ctx.inputs[kScale], DType::F32));
  const Value matrix = emit_convert(ctx, scaled, ctx.inputs[0].meta().dtype);
  return {ctx.emit("matmul", {ctx.inputs[0], matrix}, {{"tf32", ctx.node.flag("tf32")}})};
}

}  // namespace

OpDef dequantised_matmul_op() {
  return {
      .name = "dequantised_matmul",
      .operands = {{"a"}, {"b"}, {"scale"}, {"zero", OperandSpec::Arity::Optional}},
      .attrs = {{"group", AttrKind::Int, std::int64_t{0}}, {"tf32", AttrKind::Bool, false}},
      .infer = infer_dequantised_matmul,
      .evaluate = evaluate_dequantised_matmul,
      .lowering = {.decompose = decompose_dequantised_matmul, .nest = "dequantised_matmul"},
      .apart = {{1, {1}}},
  };
}

}  // namespace heddle::ir::ops
