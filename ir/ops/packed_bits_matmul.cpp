// packed_bits_matmul: a matrix product by numbers of a few bits with scales, in panels of columns, as kernels read them.
//
//   a         T[..., m, k], T being f16, bf16 or f32
//   words     i32[p, q, w], as bit_panels makes them of a matrix [k, n]: each holds r = 32 / bits rows of its column
//   scale     f16, bf16 or f32 [p, g, w]: of column j in panel j / w
//   zero      i8, i16, f16, bf16 or f32 of these sizes; optional: 0
//   bits      2, 4 or 8
//   columns   n; what lies beyond them in the last panel is of no account
//   group     rows of the matrix that share a row of scale and zero; 0: all
//   result    T[..., m, n] = matmul(a, d), where d[i, j] = (number[i, j] - zero[i / group, j]) * scale[i / group, j]
//
// Sums are f32 and what is multiplied is not rounded before: kernels may add up a times (number - zero) within each group and
// multiply that sum by the scale. An element is off by little more than (k + 2) * 2^-24 times the sum of the magnitudes that
// it adds up, and by the rounding to T. The lowering makes such calls from products by constant weights that are dequantised.
//
// Constraints. infer() checks them in this order; tests are named packed_bits_matmul_c1 ...
//   C1  a is f16, bf16 or f32
//   C2  words are i32
//   C3  scale is f16, bf16 or f32, and zero one of these, i8 or i16
//   C4  a has at least two dimensions, words, scale and zero have three
//   C5  bits is 2, 4 or 8
//   C6  q words of r rows are k rows
//   C7  p panels of w columns hold n columns, and p - 1 do not
//   C8  group is 0, or a multiple of r of which k is one
//   C9  scale and zero have p panels of g rows, k / group or one, and w columns
//
// Memory: the result is fresh.
// Source: as dequantised_matmul and packed_matmul; ONNX Runtime's contrib op "MatMulNBits".
#include "ir/ops/bit_ops.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kWordBits = 32;
constexpr std::size_t kScale = 2;
constexpr std::size_t kZero = 3;

bool is_real(DType dtype) {
  return dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32;
}

void require_dtypes(const InferContext& ctx) {
  const auto name = [&](std::size_t k) { return std::string(name_of(ctx.meta(k).dtype)); };
  constexpr std::string_view kC3 = "C3 scale is f16, bf16 or f32, and zero one of these, i8 or i16";
  if (!is_real(ctx.meta(0).dtype))
    ctx.fail_dtype("C1 a is f16, bf16 or f32", "f16, bf16 or f32", name(0));
  if (ctx.meta(1).dtype != DType::I32) ctx.fail_dtype("C2 words are i32", "i32", name(1));
  if (!is_real(ctx.meta(kScale).dtype)) ctx.fail_dtype(kC3, "f16, bf16 or f32", name(kScale));
  if (!ctx.has(kZero) || is_real(ctx.meta(kZero).dtype)) return;
  const DType zero = ctx.meta(kZero).dtype;
  if (zero != DType::I8 && zero != DType::I16)
    ctx.fail_dtype(kC3, "f16, bf16, f32, i8 or i16", name(kZero));
}

void require_ranks(const InferContext& ctx) {
  constexpr std::string_view kC4 =
      "C4 a has at least two dimensions, words, scale and zero have three";
  if (ctx.meta(0).rank() < 2)
    ctx.fail_shape(kC4, "sizes [..., m, k]", text_of(seen(ctx.env, ctx.meta(0).sizes)));
  for (const std::size_t k : {std::size_t{1}, kScale, kZero})
    if (ctx.has(k) && ctx.meta(k).rank() != 3)
      ctx.fail_shape(kC4, "three dimensions", text_of(seen(ctx.env, ctx.meta(k).sizes)));
}

std::vector<TensorMeta> infer(const InferContext& ctx) {
  require_dtypes(ctx);
  require_ranks(ctx);
  const std::int64_t bits = ctx.integer("bits");
  if (bits != 2 && bits != 4 && bits != 8)
    fail_argument(ctx, "C5 bits is 2, 4 or 8", "2, 4 or 8", std::to_string(bits));
  const Dims& a = ctx.meta(0).sizes;
  const Dims& words = ctx.meta(1).sizes;
  const std::int64_t rows = kWordBits / bits;
  ctx.require_equal(a.back(), words[1] * rows, "C6 q words of r rows are k rows");
  const SymExpr columns = ctx.integer("columns");
  constexpr std::string_view kC7 = "C7 p panels of w columns hold n columns, and p - 1 do not";
  require_le(ctx, 1, words[2], kC7, "at least 1 column a panel", words[2].to_string());
  ctx.require_equal(ceildiv(columns, words[2]), words[0], kC7);
  const std::int64_t group = ctx.integer("group");
  constexpr std::string_view kC8 = "C8 group is 0, or a multiple of r of which k is one";
  if (group < 0 || group % rows != 0)
    fail_argument(ctx, kC8, "0 or a multiple of " + std::to_string(rows), std::to_string(group));
  if (group != 0) require_multiple(ctx, a.back(), group, kC8);
  const SymExpr groups = group == 0 ? SymExpr(1) : floordiv(a.back(), group);
  const Dims wanted{words[0], groups, words[2]};
  for (const std::size_t k : {kScale, kZero})
    for (std::size_t d = 0; ctx.has(k) && d < wanted.size(); ++d)
      ctx.require_equal(
          wanted[d], ctx.meta(k).sizes[d],
          "C9 scale and zero have p panels of g rows, k / group or one, and w columns");
  Dims sizes(a.begin(), a.end() - 1);
  sizes.push_back(columns);
  return one(fresh(ctx, ctx.meta(0).dtype, std::move(sizes)));
}

/// d, row-major.
Literal dequantised(const EvalContext& ctx, std::int64_t depth, std::int64_t columns) {
  const std::int64_t bits = ctx.node.integer("bits");
  const std::int64_t rows = kWordBits / bits;
  const Sizes& sizes = ctx.inputs[1].sizes();
  const std::int64_t group = ctx.node.integer("group") == 0 ? depth : ctx.node.integer("group");
  const std::vector<std::int64_t> words = dense<std::int64_t>(ctx.inputs[1]);
  const std::vector<double> scales = dense<double>(ctx.inputs[kScale]);
  const std::vector<double> zeros =
      ctx.has(kZero) ? dense<double>(ctx.inputs[kZero]) : std::vector<double>(scales.size());
  std::vector<double> values;
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t panel = j / sizes[2];
      const auto word =
          static_cast<std::size_t>((panel * sizes[1] + k / rows) * sizes[2] + j % sizes[2]);
      const auto beside = static_cast<std::size_t>(
          (panel * ctx.inputs[kScale].sizes()[1] + k / group) * sizes[2] + j % sizes[2]);
      const std::int64_t number = signed_bits(words[word] >> (k % rows * bits), bits);
      values.push_back((static_cast<double>(number) - zeros[beside]) * scales[beside]);
    }
  return literal_of(DType::F32, {depth, columns}, values);
}

std::vector<Literal> evaluate(const EvalContext& ctx) {
  const Literal a = converted(ctx.inputs[0], DType::F32);
  const Literal d = dequantised(ctx, a.sizes().back(), ctx.node.integer("columns"));
  return {converted(matrix_product(a, d, ctx.output_sizes()), ctx.inputs[0].dtype())};
}

}  // namespace

OpDef packed_bits_matmul_op() {
  return {
      .name = "packed_bits_matmul",
      .operands = {{"a"}, {"words"}, {"scale"}, {"zero", OperandSpec::Arity::Optional}},
      .attrs = {{"bits", AttrKind::Int, {}},
                {"columns", AttrKind::Int, {}},
                {"group", AttrKind::Int, std::int64_t{0}}},
      .infer = infer,
      .evaluate = evaluate,
      .lowering = {.nest = "packed_bits_matmul"},
  };
}

}  // namespace heddle::ir::ops
