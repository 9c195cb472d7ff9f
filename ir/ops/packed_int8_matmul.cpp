// packed_int8_matmul: an exact product of bytes, its right operand in panels of columns, four elements of the depth side by side.
//
//   a         u8[..., m, k]
//   panels    i8[p, q, w, 4]: element (row, column) of the right matrix is element (column / w, row / 4, column % w,
//             row % 4); rows from k on are not read as anything but 0. Or i8[..., p, q, w, 4]: those of a matrix for each of a
//   pairs_fit bool[]; optional: false. If true, any u8 times each two neighbours of the last dimension of panels, first and second
//             or third and fourth, add up to an i16: kernels may multiply so. Nothing checks it
//   rest, places, counts: optional, what split_byte_pairs made beside the panels: i8[p, m, w, 4], i32[p, m] and i32[p]. What element
//             (c, k, j) of rest holds is added to the group places[c, k] of the right matrix's rows for k < counts[c]; and
//             where counts[c] is not negative, pairs of panel c fit as pairs_fit says of all
//   columns   n, the columns of the right matrix; what lies beyond them in the last panel is not read
//   result    i32[..., m, n]
//
// Sums wrap modulo 2^32. The lowering makes such calls from products of bytes converted to i32 with constant weights.
//
// Constraints. infer() checks them in this order; tests are named packed_int8_matmul_c1 ...
//   C1  a is u8 and panels are i8
//   C2  a has at least two dimensions, panels have four, or four behind all but two of a
//   C3  the last dimension of panels is 4
//   C4  q groups of 4 hold k rows, and q - 1 do not
//   C5  p panels of w columns hold n columns, and p - 1 do not
//   C6  pairs_fit is a bool without dimensions
//   C7  rest, places and counts are there together
//   C8  rest is i8, places and counts are i32
//   C9  rest is [p, m, w, 4], places [p, m] and counts [p]
//
// Memory: the result is fresh.
// Source: Intel, "Architecture Instruction Set Extensions": VPDPBUSD multiplies four bytes without a sign by four with one.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kQuad = 4;
constexpr std::size_t kRest = 3;
constexpr std::size_t kPlaces = 4;
constexpr std::size_t kCounts = 5;

void require_rest(const InferContext& ctx) {
  const bool has_rest = ctx.has(kRest);
  if (has_rest != ctx.has(kPlaces) || has_rest != ctx.has(kCounts))
    fail_argument(ctx, "C7 rest, places and counts are there together", "all of them or none",
                  "some of them");
  if (!has_rest) return;
  constexpr std::string_view kC8 = "C8 rest is i8, places and counts are i32";
  constexpr std::string_view kC9 = "C9 rest is [p, m, w, 4], places [p, m] and counts [p]";
  const TensorMeta& panels = ctx.meta(1);
  const auto require = [&](std::size_t k, DType dtype, const Dims& sizes) {
    const TensorMeta& meta = ctx.meta(k);
    if (meta.dtype != dtype)
      ctx.fail_dtype(kC8, std::string(name_of(dtype)), std::string(name_of(meta.dtype)));
    if (meta.rank() != static_cast<std::int64_t>(sizes.size()))
      ctx.fail_shape(kC9, text_of(sizes), text_of(meta.sizes));
    for (std::size_t d = 0; d < sizes.size(); ++d) ctx.require_equal(sizes[d], meta.sizes[d], kC9);
  };
  const Dims& rest = ctx.meta(kRest).sizes;
  const SymExpr most = rest.size() > 1 ? rest[1] : SymExpr(1);
  require(kRest, DType::I8, {panels.sizes[0], most, panels.sizes[2], SymExpr(kQuad)});
  require(kPlaces, DType::I32, {panels.sizes[0], most});
  require(kCounts, DType::I32, {panels.sizes[0]});
}

/// Panels with what lies beside them put back.
Literal with_rest(const Literal& panels, const Literal& rest, const Literal& places,
                  const Literal& counts) {
  const std::int64_t groups = panels.sizes()[1];
  const std::int64_t most = rest.sizes()[1];
  const auto bytes = static_cast<std::size_t>(panels.sizes()[2] * kQuad);
  std::vector<std::int64_t> whole = dense<std::int64_t>(panels);
  const std::vector<std::int64_t> added = dense<std::int64_t>(rest);
  for (std::int64_t c = 0; c < panels.sizes()[0]; ++c)
    for (std::int64_t k = 0; k < counts.at_int(c); ++k) {
      const auto from = static_cast<std::size_t>(c * most + k) * bytes;
      const auto to = static_cast<std::size_t>(c * groups + places.at_int(c * most + k)) * bytes;
      for (std::size_t j = 0; j < bytes; ++j) whole[to + j] = whole[to + j] + added[from + j];
    }
  return literal_of(DType::I8, panels.sizes(), whole);
}

std::vector<TensorMeta> infer_packed_int8_matmul(const InferContext& ctx) {
  constexpr std::string_view kC1 = "C1 a is u8 and panels are i8";
  const DType a = ctx.meta(0).dtype;
  const DType panels = ctx.meta(1).dtype;
  if (a != DType::U8) ctx.fail_dtype(kC1, "u8", std::string(name_of(a)));
  if (panels != DType::I8) ctx.fail_dtype(kC1, "i8", std::string(name_of(panels)));
  std::vector<TensorMeta> result = panel_product(ctx, kQuad, DType::I32);
  require_pairs_fit(ctx, 2, "C6 pairs_fit is a bool without dimensions");
  require_rest(ctx);
  return result;
}

std::vector<Literal> evaluate_packed_int8_matmul(const EvalContext& ctx) {
  const Literal& a = ctx.inputs[0];
  const Literal& panels = ctx.inputs[1];
  if (!ctx.has(kRest)) return {panel_product(a, panels, DType::I32, ctx.output_sizes())};
  const Literal whole =
      with_rest(panels, ctx.inputs[kRest], ctx.inputs[kPlaces], ctx.inputs[kCounts]);
  return {panel_product(a, whole, DType::I32, ctx.output_sizes())};
}

}  // namespace

OpDef packed_int8_matmul_op() {
  return {
      .name = "packed_int8_matmul",
      .operands = {{"a"},
                   {"panels"},
                   {"pairs_fit", OperandSpec::Arity::Optional},
                   {"rest", OperandSpec::Arity::Optional},
                   {"places", OperandSpec::Arity::Optional},
                   {"counts", OperandSpec::Arity::Optional}},
      .attrs = {{"columns", AttrKind::Int, {}}},
      .infer = infer_packed_int8_matmul,
      .evaluate = evaluate_packed_int8_matmul,
      .lowering = {.nest = "packed_int8_matmul"},
      .apart = {{1, {1}}, {2, {2, 4}}},
  };
}

}  // namespace heddle::ir::ops
