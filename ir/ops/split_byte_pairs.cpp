// split_byte_pairs: panels of bytes as panels whose pairs fit 16 bits, and what is left of the few others.
//
//   panels   i8[p, q, w, 4]: p panels of q groups of w columns
//   most     groups of a panel with pairs that do not fit, at most: m
//   fitting  i8[p, q, w, 4]
//   rest     i8[p, m, w, 4]
//   places   i32[p, m]
//   counts   i32[p]
//
// A pair are the first and second, or third and fourth, bytes of a column of a group. It fits where any u8 times each of both add
// up to an i16: where its positive elements add up to 128 at most, and its negative ones to -128 at least.
//
// Of panel c with n groups of pairs that do not fit:
//   n <= m  fitting[c] is panels[c] with what a pair is too much by taken from its first element, so that all pairs fit. For
//           k < n, rest[c, k] is what was taken from group places[c, k]: panels[c, places[c, k]] = fitting[c, places[c, k]] + rest[c, k].
//           places[c] ascend, and counts[c] = n
//   n > m   fitting[c] is panels[c], and counts[c] = -1
// All other elements of rest and of places are 0. The pairs of rest fit as well.
//
// Constraints. infer() checks them in this order; tests are named split_byte_pairs_c1 ...
//   C1  panels are i8
//   C2  panels have four dimensions
//   C3  the last dimension of panels is 4
//   C4  most is at least 1
//
// Memory: the results are fresh.
// Source: Intel, "Intrinsics Guide": PMADDUBSW multiplies bytes without a sign by bytes with one and adds two neighbours, which saturate.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kQuad = 4;
constexpr std::int64_t kMostOfPair = 128;

std::vector<TensorMeta> infer_split_byte_pairs(const InferContext& ctx) {
  const TensorMeta& panels = ctx.meta(0);
  if (panels.dtype != DType::I8)
    ctx.fail_dtype("C1 panels are i8", "i8", std::string(name_of(panels.dtype)));
  if (panels.rank() != 4)
    ctx.fail_shape("C2 panels have four dimensions", "sizes [p, q, w, 4]", text_of(panels.sizes));
  ctx.require_equal(kQuad, panels.sizes[3], "C3 the last dimension of panels is 4");
  const std::int64_t most = ctx.integer("most");
  if (most < 1) fail_argument(ctx, "C4 most is at least 1", "1 or more", std::to_string(most));
  const SymExpr& count = panels.sizes[0];
  return {fresh(ctx, DType::I8, panels.sizes),
          fresh(ctx, DType::I8, {count, SymExpr(most), panels.sizes[2], SymExpr(kQuad)}),
          fresh(ctx, DType::I32, {count, SymExpr(most)}), fresh(ctx, DType::I32, {count})};
}

/// What a pair is too much by.
std::int64_t excess(std::int64_t first, std::int64_t second) {
  const std::int64_t positive =
      std::max<std::int64_t>(first, 0) + std::max<std::int64_t>(second, 0);
  const std::int64_t negative =
      std::min<std::int64_t>(first, 0) + std::min<std::int64_t>(second, 0);
  return std::max<std::int64_t>(positive - kMostOfPair, 0) +
         std::min<std::int64_t>(negative + kMostOfPair, 0);
}

std::vector<Literal> evaluate_split_byte_pairs(const EvalContext& ctx) {
  const Literal& panels = ctx.inputs[0];
  const std::int64_t most = ctx.node.integer("most");
  const Sizes& sizes = panels.sizes();
  const auto group = static_cast<std::size_t>(sizes[2] * sizes[3]);
  const std::vector<std::int64_t> given = dense<std::int64_t>(panels);
  std::vector<std::int64_t> fitting = given;
  std::vector<std::int64_t> rest(static_cast<std::size_t>(sizes[0] * most) * group);
  std::vector<std::int64_t> places(static_cast<std::size_t>(sizes[0] * most));
  std::vector<std::int64_t> counts;
  for (std::int64_t c = 0; c < sizes[0]; ++c) {
    std::vector<std::int64_t> found;
    const auto begin_of = [&](std::int64_t g) {
      return static_cast<std::size_t>(c * sizes[1] + g) * group;
    };
    const auto excess_at = [&](std::size_t k) { return excess(given[k], given[k + 1]); };
    for (std::int64_t g = 0; g < sizes[1]; ++g) {
      bool fits = true;
      for (std::size_t k = 0; k < group; k += 2) fits = fits && excess_at(begin_of(g) + k) == 0;
      if (!fits) found.push_back(g);
    }
    const auto count = static_cast<std::int64_t>(found.size());
    counts.push_back(count <= most ? count : -1);
    if (count > most) continue;
    for (std::int64_t n = 0; n < count; ++n) {
      const auto to = static_cast<std::size_t>(c * most + n);
      const std::size_t from = begin_of(found[static_cast<std::size_t>(n)]);
      places[to] = found[static_cast<std::size_t>(n)];
      for (std::size_t k = 0; k < group; k += 2) {
        const std::int64_t much = excess_at(from + k);
        rest[to * group + k] = much;
        fitting[from + k] = given[from + k] - much;
      }
    }
  }
  return {literal_of(DType::I8, sizes, fitting),
          literal_of(DType::I8, {sizes[0], most, sizes[2], kQuad}, rest),
          literal_of(DType::I32, {sizes[0], most}, places),
          literal_of(DType::I32, {sizes[0]}, counts)};
}

}  // namespace

OpDef split_byte_pairs_op() {
  return {.name = "split_byte_pairs",
          .operands = {{"panels"}},
          .attrs = {{"most", AttrKind::Int, {}}},
          .outputs = 4,
          .infer = infer_split_byte_pairs,
          .evaluate = evaluate_split_byte_pairs,
          .lowering = {.nest = "split_byte_pairs"}};
}

}  // namespace heddle::ir::ops
