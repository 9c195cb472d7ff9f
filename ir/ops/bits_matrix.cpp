#include "ir/ops/bits_matrix.h"

#include <string>

#include "ir/ops/bit_ops.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

void require_dtypes(const InferContext& ctx, std::size_t zero) {
  const auto name = [&](std::size_t k) { return std::string(name_of(ctx.meta(k).dtype)); };
  constexpr std::string_view kC4 = "C4 scale is f16, bf16 or f32, and zero one of these, i8 or i16";
  if (ctx.meta(BitsMatrix::kWords).dtype != DType::I32)
    ctx.fail_dtype("C3 words are i32", "i32", name(BitsMatrix::kWords));
  if (!is_scale(ctx.meta(BitsMatrix::kScale).dtype))
    ctx.fail_dtype(kC4, "f16, bf16 or f32", name(BitsMatrix::kScale));
  if (!ctx.has(zero) || is_scale(ctx.meta(zero).dtype)) return;
  const DType dtype = ctx.meta(zero).dtype;
  if (dtype != DType::I8 && dtype != DType::I16)
    ctx.fail_dtype(kC4, "f16, bf16, f32, i8 or i16", name(zero));
}

}  // namespace

void BitsMatrix::require(const InferContext& ctx, const SymExpr& depth) const {
  require_dtypes(ctx, zero);
  for (const std::size_t k : {kWords, kScale, zero})
    if (ctx.has(k) && ctx.meta(k).rank() != 3)
      ctx.fail_shape("C5 words, scale and zero have three dimensions", "three dimensions",
                     text_of(seen(ctx.env, ctx.meta(k).sizes)));
  const std::int64_t bits = ctx.integer("bits");
  if (bits != 2 && bits != 4 && bits != 8)
    fail_argument(ctx, "C6 bits is 2, 4 or 8", "2, 4 or 8", std::to_string(bits));
  const Dims& words = ctx.meta(kWords).sizes;
  const std::int64_t rows = kWordBits / bits;
  ctx.require_equal(depth, words[1] * rows, "C7 q words of r rows are k rows");
  constexpr std::string_view kC8 = "C8 p panels of w columns hold n columns, and p - 1 do not";
  require_le(ctx, 1, words[2], kC8, "at least 1 column a panel", words[2].to_string());
  ctx.require_equal(ceildiv(SymExpr(ctx.integer("columns")), words[2]), words[0], kC8);
  const std::int64_t group = ctx.integer("group");
  constexpr std::string_view kC9 = "C9 group is 0, or a multiple of r of which k is one";
  if (group < 0 || group % rows != 0)
    fail_argument(ctx, kC9, "0 or a multiple of " + std::to_string(rows), std::to_string(group));
  if (group != 0) require_multiple(ctx, depth, group, kC9);
  const Dims wanted{words[0], group == 0 ? SymExpr(1) : floordiv(depth, group), words[2]};
  for (const std::size_t k : {kScale, zero})
    for (std::size_t d = 0; ctx.has(k) && d < wanted.size(); ++d)
      ctx.require_equal(
          wanted[d], ctx.meta(k).sizes[d],
          "C10 scale and zero have p panels of g rows, k / group or one, and w columns");
}

std::vector<double> BitsMatrix::values(const EvalContext& ctx) const {
  const std::int64_t bits = ctx.node.integer("bits");
  const std::int64_t rows = kWordBits / bits;
  const std::int64_t columns = ctx.node.integer("columns");
  const Sizes& sizes = ctx.inputs[kWords].sizes();
  const Sizes& scale_sizes = ctx.inputs[kScale].sizes();
  const std::int64_t depth = sizes[1] * rows;
  const std::int64_t group = ctx.node.integer("group") == 0 ? depth : ctx.node.integer("group");
  const std::vector<std::int64_t> words = dense<std::int64_t>(ctx.inputs[kWords]);
  const std::vector<double> scales = dense<double>(ctx.inputs[kScale]);
  const std::vector<double> zeros =
      ctx.has(zero) ? dense<double>(ctx.inputs[zero]) : std::vector<double>(scales.size());
  std::vector<double> values;
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t panel = j / sizes[2];
      const auto word =
          static_cast<std::size_t>((panel * sizes[1] + k / rows) * sizes[2] + j % sizes[2]);
      const auto beside =
          static_cast<std::size_t>((panel * scale_sizes[1] + k / group) * sizes[2] + j % sizes[2]);
      const std::int64_t number = signed_bits(words[word] >> bit_of_row(k % rows, bits), bits);
      values.push_back((static_cast<double>(number) - zeros[beside]) * scales[beside]);
    }
  return values;
}

}  // namespace heddle::ir::ops
