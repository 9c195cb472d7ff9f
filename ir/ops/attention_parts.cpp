// attention_parts: attention over each part of the keys by itself, before its division.
//
//   q, k, v, mask, causal, scale, softcap, hidden, bf16: as in attention
//   part     a symbolic integer, 1 or more: neighbouring keys of a part; P = ceil(Lk / part) of them
//   sums     A[B, H, Lq, P, Dv]: of a part's keys, v times exp(score - largest), added up
//   largest  A[B, H, Lq, P]: the largest score of a part, -inf where it has none
//   totals   A[B, H, Lq, P]: of a part's keys, exp(score - largest) added up
//
// A is what attention computes in: f64 where its result is, else f32. Sums and totals are 0 where largest is -inf. Operands are
// converted to the dtype of attention's result.
//
// Constraints: those of attention, C1 to C10, and
//   C11 part is at least 1
//
// join_attention: the result of attention from what parts of the keys gave.
//
//   sums, largest, totals: as above, of a floating dtype
//   nan_rows what a query gives whose largest are all -inf, though there are parts: NaN instead of 0
//   result   A[B, H, Lq, Dv]: with the shares w = exp(largest - their largest), the sum of w * sums over that of w * totals
//
// Constraints. infer() checks them in this order; tests are named join_attention_c1 ...
//   C1  all are of one floating dtype
//   C2  sums have five dimensions
//   C3  largest and totals have the sizes of sums but for the last
//
// Memory: the results are fresh.
// Source: what jit/lower/split_attention.h makes of attention; Dao et al., "Flash-Decoding for long-context inference", 2023.
#include <algorithm>
#include <cmath>

#include "ir/ops/attention.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/norm_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_parts(const InferContext& ctx) {
  const AttentionResult whole = check_attention(ctx);
  const SymExpr& part = std::get<SymExpr>(ctx.attrs.at("part"));
  require_le(ctx, 1, part, "C11 part is at least 1", "1 or more", seen(ctx.env, part).to_string());
  const DType dtype = statistics_dtype(whole.dtype);
  Dims sizes = whole.sizes;
  sizes.insert(sizes.begin() + 3, ceildiv(ctx.meta(1).sizes[2], part));
  const Dims of_parts(sizes.begin(), sizes.begin() + 4);
  return {fresh(ctx, dtype, sizes), fresh(ctx, dtype, of_parts), fresh(ctx, dtype, of_parts)};
}

std::vector<Literal> evaluate_parts(const EvalContext& ctx) {
  const DType result =
      promote(promote(ctx.inputs[0].dtype(), ctx.inputs[1].dtype()), ctx.inputs[2].dtype());
  const AttentionProblem p = attention_problem(ctx, result);
  const std::int64_t part = ctx.concrete({&std::get<SymExpr>(ctx.node.attr("part")), 1})[0];
  const std::int64_t parts = (p.keys + part - 1) / part;
  const auto count = static_cast<std::size_t>(p.rows() * parts);
  std::vector<double> sums(count * static_cast<std::size_t>(p.value_size));
  std::vector<double> largest(count, kHiddenScore), totals(count);
  for (std::size_t at = 0; at < count; ++at) {
    const std::int64_t row = static_cast<std::int64_t>(at) / parts;
    const std::int64_t begin = static_cast<std::int64_t>(at) % parts * part;
    std::vector<double> scores;
    for (std::int64_t key = begin; key < std::min(p.keys, begin + part); ++key)
      scores.push_back(p.score(row, key));
    for (const double s : scores) largest[at] = std::isnan(s) ? s : std::max(largest[at], s);
    if (largest[at] == kHiddenScore) continue;
    const double* v = p.v.data() + (p.first_key(row) + begin) * p.value_size;
    double* out = sums.data() + at * static_cast<std::size_t>(p.value_size);
    for (const double s : scores) {
      const double weight = std::exp(s - largest[at]);
      totals[at] += weight;
      for (std::int64_t d = 0; d < p.value_size; ++d) out[d] += weight * v[d];
      v += p.value_size;
    }
  }
  const DType dtype = statistics_dtype(result);
  return {literal_of(dtype, ctx.output_sizes(0), sums),
          literal_of(dtype, ctx.output_sizes(1), largest),
          literal_of(dtype, ctx.output_sizes(2), totals)};
}

std::vector<TensorMeta> infer_joined(const InferContext& ctx) {
  constexpr std::string_view kC1 = "C1 all are of one floating dtype";
  require_floating(ctx, 0, kC1);
  const TensorMeta& sums = ctx.meta(0);
  for (std::size_t k = 1; k < 3; ++k)
    if (ctx.meta(k).dtype != sums.dtype)
      ctx.fail_dtype(kC1, text_of(sums.dtype), text_of(ctx.meta(k).dtype));
  if (sums.rank() != 5)
    ctx.fail_shape("C2 sums have five dimensions", "[batch, heads, length, parts, size]",
                   text_of(seen(ctx.env, sums.sizes)));
  constexpr std::string_view kC3 = "C3 largest and totals have the sizes of sums but for the last";
  const Dims of_parts(sums.sizes.begin(), sums.sizes.begin() + 4);
  for (std::size_t k = 1; k < 3; ++k) {
    const Dims& sizes = ctx.meta(k).sizes;
    if (sizes.size() != 4) ctx.fail_shape(kC3, text_of(of_parts), text_of(sizes));
    for (std::size_t d = 0; d < 4; ++d) ctx.require_equal(of_parts[d], sizes[d], kC3);
  }
  return one(fresh(ctx, sums.dtype, {sums.sizes[0], sums.sizes[1], sums.sizes[2], sums.sizes[4]}));
}

std::vector<Literal> evaluate_joined(const EvalContext& ctx) {
  const std::vector<double> sums = dense<double>(ctx.inputs[0]);
  const std::vector<double> largest = dense<double>(ctx.inputs[1]);
  const std::vector<double> totals = dense<double>(ctx.inputs[2]);
  const auto parts = static_cast<std::size_t>(ctx.inputs[0].sizes()[3]);
  const auto columns = static_cast<std::size_t>(ctx.inputs[0].sizes()[4]);
  std::vector<double> result(static_cast<std::size_t>(element_count(ctx.output_sizes())));
  const bool nan_rows = ctx.node.flag("nan_rows") && parts > 0;
  for (std::size_t row = 0; row * columns < result.size(); ++row) {
    double most = kHiddenScore;
    for (std::size_t p = 0; p < parts; ++p) {
      const double one = largest[row * parts + p];
      most = std::isnan(one) ? one : std::max(most, one);
    }
    double total = 0;
    double* out = result.data() + row * columns;
    for (std::size_t p = 0; p < parts; ++p) {
      const std::size_t at = row * parts + p;
      const double share = most == kHiddenScore ? 0 : std::exp(largest[at] - most);
      total += share * totals[at];
      for (std::size_t d = 0; d < columns; ++d) out[d] += share * sums[at * columns + d];
    }
    for (std::size_t d = 0; d < columns; ++d) out[d] = total == 0 && !nan_rows ? 0 : out[d] / total;
  }
  return {literal_of(ctx.node.output().dtype, ctx.output_sizes(), result)};
}

}  // namespace

OpDef attention_parts_op() {
  return {.name = "attention_parts",
          .operands = {{"q"}, {"k"}, {"v"}, {"mask", OperandSpec::Arity::Optional}},
          .attrs = {{"causal", AttrKind::Bool, false},
                    {"scale", AttrKind::Float, 0.0},
                    {"softcap", AttrKind::Float, 0.0},
                    {"hidden", AttrKind::Float, kHiddenScore},
                    {"bf16", AttrKind::Bool, false},
                    {"part", AttrKind::SymInt, {}}},
          .outputs = 3,
          .infer = infer_parts,
          .evaluate = evaluate_parts,
          .lowering = {.nest = "attention_parts"}};
}

OpDef join_attention_op() {
  return {.name = "join_attention",
          .operands = {{"sums"}, {"largest"}, {"totals"}},
          .attrs = {{"nan_rows", AttrKind::Bool, false}},
          .infer = infer_joined,
          .evaluate = evaluate_joined,
          .lowering = {.nest = "join_attention"}};
}

}  // namespace heddle::ir::ops
