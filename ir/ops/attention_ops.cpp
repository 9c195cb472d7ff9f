// attention: softmax(cap(q k^T * scale) + mask) v, head by head.
//
//   q        T[B, H, Lq, D]
//   k        U[B, Hk, Lk, D]; heads of q share those of k in runs: head h reads head h / (H / Hk)
//   v        V[B, Hk, Lk, Dv]
//   mask     optional, broadcasts to [B, H, Lq, Lk]; bool: true where query i sees key j;
//            floating: added to the scores, so that -inf hides
//   causal   query i sees key j only if j <= i + (Lk - Lq)
//   scale    what scores are multiplied by; 0 means 1 / sqrt(D)
//   softcap  scores s become softcap * tanh(s / softcap) before the mask; 0: they stay
//   hidden   the score of a key that a bool mask hides: -inf, or the finite number that a model writes there
//   nan_rows what a query gives whose scores are all -inf, though there are keys: NaN, as a softmax that is
//            written out does, instead of 0
//   bf16     operands and the weights of keys may be rounded to bf16 before they are multiplied, and numbers below 2^-126 count as 0
//   result   promote(T, U, V)[B, H, Lq, Dv]
//
// Operands are converted to the result's dtype; scores, softmax and sums are in f32 for f16 and
// bf16, and the result is rounded once. The largest score of a query is subtracted before exp. A
// query that sees no key, or whose scores are all -inf, gives 0 (see nan_rows); a NaN score that it sees makes its
// result NaN. Before it is divided by the sum of all, a weight is 1 for the largest score; kernels may take weights below 2^-126
// for 0. Hidden keys weigh 0, whatever their score; whether an infinite or NaN v of a hidden
// key shows in the result is not defined.
//
// Constraints. infer() checks them in this order; tests are named attention_c1 ...
//   C1  q, k and v have floating dtypes
//   C2  q, k and v have four dimensions
//   C3  q, k and v agree on the batch size B
//   C4  k and v agree on the heads Hk and the length Lk
//   C5  q and k agree on the head size D
//   C6  the heads H of q are a multiple of those of k
//   C7  mask is bool or floating
//   C8  mask broadcasts to [B, H, Lq, Lk]
//   C9  softcap is 0 or more, and finite
//   C10 bf16 is for a result of f32 or bf16
//
// Memory: the result is fresh.
// Lowering: nest "attention" takes q, k and v of the result's dtype; decompose is the fallback,
// into matmul and pointwise ops.
// Source: Vaswani et al., "Attention is all you need", 3.2.1; ONNX Attention-25.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/ops/attention.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/families.h"
#include "ir/ops/norm_ops.h"

namespace heddle::ir {
namespace ops {
namespace {

void check_heads(const InferContext& ctx) {
  constexpr std::string_view kC6 = "C6 the heads H of q are a multiple of those of k";
  const SymExpr& heads = ctx.meta(0).sizes[1];
  const SymExpr& shared = ctx.meta(1).sizes[1];
  const std::string expected = "a multiple of " + seen(ctx.env, shared).to_string();
  require_le(ctx, 1, shared, kC6, "at least one head of k", seen(ctx.env, shared).to_string());
  if (heads == shared) return;
  const base::Predicate exact{base::Predicate::Op::Eq, mod(heads, shared), 0};
  const std::string reason = "attention: " + std::string(kC6);
  if (!ctx.env.require(exact, reason, ctx.location)) {
    ctx.fail_shape(kC6, expected, seen(ctx.env, heads).to_string());
  }
}

void check_mask(const InferContext& ctx) {
  const DType dtype = ctx.meta(3).dtype;
  if (dtype != DType::Bool && !is_floating(dtype)) {
    ctx.fail_dtype("C7 mask is bool or floating", "bool or a floating dtype", text_of(dtype));
  }
  const Dims& q = ctx.meta(0).sizes;
  require_broadcast_to(ctx, ctx.meta(3).sizes, {q[0], q[1], q[2], ctx.meta(1).sizes[2]},
                       "C8 mask broadcasts to [B, H, Lq, Lk]");
}

}  // namespace

AttentionResult check_attention(const InferContext& ctx) {
  for (std::size_t k = 0; k < 3; ++k) {
    require_floating(ctx, k, "C1 q, k and v have floating dtypes");
  }
  for (std::size_t k = 0; k < 3; ++k) {
    if (ctx.meta(k).rank() == 4) continue;
    ctx.fail_shape("C2 q, k and v have four dimensions", "[batch, heads, length, size]",
                   text_of(seen(ctx.env, ctx.meta(k).sizes)));
  }
  const Dims& q = ctx.meta(0).sizes;
  const Dims& k = ctx.meta(1).sizes;
  const Dims& v = ctx.meta(2).sizes;
  ctx.require_equal(q[0], k[0], "C3 q, k and v agree on the batch size B");
  ctx.require_equal(q[0], v[0], "C3 q, k and v agree on the batch size B");
  ctx.require_equal(k[1], v[1], "C4 k and v agree on the heads Hk and the length Lk");
  ctx.require_equal(k[2], v[2], "C4 k and v agree on the heads Hk and the length Lk");
  ctx.require_equal(q[3], k[3], "C5 q and k agree on the head size D");
  check_heads(ctx);
  if (ctx.has(3)) check_mask(ctx);
  const double softcap = ctx.number("softcap");
  if (!(softcap >= 0 && std::isfinite(softcap)))
    fail_argument(ctx, "C9 softcap is 0 or more, and finite", "0 or a positive number",
                  std::to_string(softcap));
  const DType dtype = promote(promote(ctx.meta(0).dtype, ctx.meta(1).dtype), ctx.meta(2).dtype);
  if (ctx.flag("bf16") && dtype != DType::F32 && dtype != DType::BF16)
    ctx.fail_dtype("C10 bf16 is for a result of f32 or bf16", "f32 or bf16",
                   std::string(name_of(dtype)));
  return {dtype, {q[0], q[1], q[2], v[3]}};
}

AttentionProblem attention_problem(const EvalContext& ctx, DType dtype) {
  const Sizes& q = ctx.inputs[0].sizes();
  const Sizes& v = ctx.inputs[2].sizes();
  AttentionProblem p{.batch = q[0],
                     .heads = q[1],
                     .shared_heads = v[1],
                     .queries = q[2],
                     .keys = v[2],
                     .size = q[3],
                     .value_size = v[3],
                     .scale = ctx.node.number("scale"),
                     .softcap = ctx.node.number("softcap"),
                     .causal = ctx.node.flag("causal"),
                     .hidden = ctx.node.number("hidden"),
                     .q = dense<double>(converted(ctx.inputs[0], dtype)),
                     .k = dense<double>(converted(ctx.inputs[1], dtype)),
                     .v = dense<double>(converted(ctx.inputs[2], dtype)),
                     .mask = {},
                     .masked = ctx.has(3)};
  if (p.scale == 0) p.scale = 1.0 / std::sqrt(static_cast<double>(p.size));
  if (p.masked) p.mask = broadcast_to(ctx.inputs[3], {q[0], q[1], q[2], v[2]});
  return p;
}

double AttentionProblem::score(std::int64_t row, std::int64_t key) const {
  const std::int64_t query = row % queries;
  if (causal && key > query + keys - queries) return kHiddenScore;
  const double added = masked ? mask.at(row * keys + key) : 0.0;
  const bool chooses = masked && mask.dtype() == DType::Bool;
  if (chooses && added == 0.0) return hidden;
  double sum = 0;
  const double* left = q.data() + row * size;
  const double* right = k.data() + (first_key(row) + key) * size;
  for (std::int64_t d = 0; d < size; ++d) sum += left[d] * right[d];
  sum *= scale;
  if (softcap != 0) sum = softcap * std::tanh(sum / softcap);
  return sum + (chooses ? 0.0 : added);
}

std::int64_t AttentionProblem::first_key(std::int64_t row) const {
  const std::int64_t head = row / queries % heads;
  return (row / queries / heads * shared_heads + head / (heads / shared_heads)) * keys;
}

namespace {

std::vector<TensorMeta> infer_attention(const InferContext& ctx) {
  AttentionResult result = check_attention(ctx);
  return one(fresh(ctx, result.dtype, std::move(result.sizes)));
}

/// Scores to weights that sum to 1, or are all `empty` when every score is -inf.
void softmax_or(double empty, std::vector<double>& scores) {
  double largest = kHiddenScore;
  for (const double s : scores) largest = std::isnan(s) ? s : std::max(largest, s);
  double sum = 0;
  for (double& s : scores) sum += s = largest == kHiddenScore ? 0.0 : std::exp(s - largest);
  for (double& s : scores) s = sum == 0 ? empty : s / sum;
}

std::vector<Literal> evaluate_attention(const EvalContext& ctx) {
  const AttentionProblem p = attention_problem(ctx, ctx.node.output().dtype);
  std::vector<double> result(static_cast<std::size_t>(element_count(ctx.output_sizes())));
  std::vector<double> weights(static_cast<std::size_t>(p.keys));
  const double empty = ctx.node.flag("nan_rows") ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  for (std::int64_t row = 0; row < p.rows(); ++row) {
    for (std::int64_t key = 0; key < p.keys; ++key)
      weights[static_cast<std::size_t>(key)] = p.score(row, key);
    softmax_or(empty, weights);
    const double* v = p.v.data() + p.first_key(row) * p.value_size;
    double* out = result.data() + row * p.value_size;
    for (std::int64_t key = 0; key < p.keys; ++key) {
      for (std::int64_t d = 0; d < p.value_size; ++d) {
        out[d] += weights[static_cast<std::size_t>(key)] * v[key * p.value_size + d];
      }
    }
  }
  return {literal_of(ctx.node.output().dtype, ctx.output_sizes(), result)};
}

// The decomposition. Sizes in it: [B, H, Lq, D] becomes [B, Hk, H / Hk, Lq, D] where heads are
// shared.

struct Shapes {
  Dims q, k, v;
  bool shared() const { return q[1] != k[1]; }
  Dims grouped(const SymExpr& length, const SymExpr& size) const {
    return {q[0], k[1], floordiv(q[1], k[1]), length, size};
  }
};

Value emit_scale(Emitter& emit, const SymExpr& size, DType dtype) {
  const double scale = emit.ctx.node.number("scale");
  if (scale != 0) return emit.ctx.scalar(dtype, scale);
  if (const auto known = size.as_constant()) {
    return emit.ctx.scalar(dtype, 1.0 / std::sqrt(static_cast<double>(*known)));
  }
  const Value number = emit.ctx.emit("symint", {}, {{"value", size}});
  return emit.one_operand("rsqrt", emit_convert(emit.ctx, number, dtype));
}

/// q k^T * scale, capped, of sizes [B, H, Lq, Lk].
Value emit_scores(Emitter& emit, const Shapes& s, DType dtype) {
  DecomposeContext& ctx = emit.ctx;
  Value q = emit.operand(0, dtype);
  Value k = emit.operand(1, dtype);
  std::vector<std::int64_t> transposed = {0, 1, 3, 2};
  if (s.shared()) {
    q = emit_reshape(ctx, q, s.grouped(s.q[2], s.q[3]));
    k = emit_reshape(ctx, k, {s.k[0], s.k[1], 1, s.k[2], s.k[3]});
    transposed = {0, 1, 2, 4, 3};
  }
  const Value product = ctx.emit("matmul", {q, ctx.emit("permute", {k}, {{"perm", transposed}})});
  const Value scores = emit.mul(emit_reshape(ctx, product, {s.q[0], s.q[1], s.q[2], s.k[2]}),
                                emit_scale(emit, s.q[3], dtype));
  const double softcap = ctx.node.number("softcap");
  if (softcap == 0) return scores;
  const Value shares = emit.mul(scores, ctx.scalar(dtype, 1.0 / softcap));
  return emit.mul(emit.one_operand("tanh", shares), ctx.scalar(dtype, softcap));
}

/// bool[Lq, Lk]: which keys causal attention lets a query see.
Value emit_causal(DecomposeContext& ctx, const SymExpr& queries, const SymExpr& keys) {
  const Attrs down = {{"sizes", Dims{queries, 1}}, {"axis", std::int64_t{0}}};
  const Attrs across = {{"sizes", Dims{1, keys}}, {"axis", std::int64_t{1}}};
  const Value offset = ctx.emit("symint", {}, {{"value", keys - queries}});
  const Value last = ctx.emit("add", {ctx.emit("iota", {}, down), offset});
  return ctx.emit("le", {ctx.emit("iota", {}, across), last});
}

Value emit_masked(Emitter& emit, Value scores, const Shapes& s) {
  DecomposeContext& ctx = emit.ctx;
  const Value hidden = ctx.scalar(scores.meta().dtype, kHiddenScore);
  if (emit.has(3) && ctx.inputs[3].meta().dtype == DType::Bool) {
    const Value masked = ctx.scalar(scores.meta().dtype, ctx.node.number("hidden"));
    scores = ctx.emit("where", {ctx.inputs[3], scores, masked});
  } else if (emit.has(3)) {
    scores = emit.add(scores, emit.operand(3, scores.meta().dtype));
  }
  if (!ctx.node.flag("causal")) return scores;
  return ctx.emit("where", {emit_causal(ctx, s.q[2], s.k[2]), scores, hidden});
}

/// `value`, or `instead` where it equals `special`.
Value emit_unless(Emitter& emit, Value value, double special, double instead) {
  DecomposeContext& ctx = emit.ctx;
  const DType dtype = value.meta().dtype;
  const Value is_special = ctx.emit("eq", {value, ctx.scalar(dtype, special)});
  return ctx.emit("where", {is_special, ctx.scalar(dtype, instead), value});
}

/// weights v, of sizes [B, H, Lq, Dv].
Value emit_weighted(Emitter& emit, Value weights, const Shapes& s) {
  DecomposeContext& ctx = emit.ctx;
  Value v = emit.operand(2, weights.meta().dtype);
  if (s.shared()) {
    weights = emit_reshape(ctx, weights, s.grouped(s.q[2], s.k[2]));
    v = emit_reshape(ctx, v, {s.v[0], s.v[1], 1, s.v[2], s.v[3]});
  }
  return emit_reshape(ctx, ctx.emit("matmul", {weights, v}), ctx.node.output().sizes);
}

std::vector<Value> decompose_attention(DecomposeContext& ctx) {
  Emitter emit{ctx};
  const Shapes s{ctx.inputs[0].meta().sizes, ctx.inputs[1].meta().sizes,
                 ctx.inputs[2].meta().sizes};
  const DType result = ctx.node.output().dtype;
  const Value scores = emit_masked(emit, emit_scores(emit, s, statistics_dtype(result)), s);
  Value largest = emit.reduce("reduce_max", scores, {3});
  if (ctx.node.flag("nan_rows")) {
    const Value weights = emit.one_operand("exp", emit.sub(scores, largest));
    const Value shares = emit.div(weights, emit.reduce("reduce_sum", weights, {3}));
    return {emit_convert(ctx, emit_weighted(emit, shares, s), result)};
  }
  largest = emit_unless(emit, largest, kHiddenScore, 0);
  const Value weights = emit.one_operand("exp", emit.sub(scores, largest));
  const Value sum = emit_unless(emit, emit.reduce("reduce_sum", weights, {3}), 0, 1);
  return {emit_convert(ctx, emit.div(emit_weighted(emit, weights, s), sum), result)};
}

}  // namespace
}  // namespace ops

std::span<const OpDef> attention_ops() {
  static const OpDef defs[] = {
      {
          .name = "attention",
          .operands = {{"q"}, {"k"}, {"v"}, {"mask", OperandSpec::Arity::Optional}},
          .attrs = {{"causal", AttrKind::Bool, false},
                    {"scale", AttrKind::Float, 0.0},
                    {"softcap", AttrKind::Float, 0.0},
                    {"hidden", AttrKind::Float, ops::kHiddenScore},
                    {"nan_rows", AttrKind::Bool, false},
                    {"bf16", AttrKind::Bool, false}},
          .infer = ops::infer_attention,
          .evaluate = ops::evaluate_attention,
          .lowering = {.decompose = ops::decompose_attention,
                       .nest = "attention",
                       .decompose_last = true},
          .apart = {{3, {3, 3, 3, 3}}},
      },
      ops::attention_parts_op(),
      ops::join_attention_op()};
  return defs;
}

}  // namespace heddle::ir
