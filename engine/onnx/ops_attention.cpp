// Attention and what stands around it in language models: rotary embeddings, caches of keys and values, and the
// recurrences that take its place.

#include <cmath>
#include <limits>

#include "engine/onnx/attention.h"
#include "engine/onnx/converters.h"
#include "heddle/control_flow.h"

namespace heddle::onnx {

namespace {

Tensor zeros(DType dtype, SymInts sizes) {
  return expand(Tensor::scalar(dtype, 0), std::move(sizes));
}

/// [B, H, L, D] of a tensor that may have its heads side by side, [B, L, H * D].
Tensor by_heads(const Node& node, const Tensor& x, std::string_view heads_attr) {
  if (x.rank() == 4) return x;
  return split_heads(node, x, node.integer(heads_attr, 0), heads_attr);
}

/// Positions that the keys have, as their queries count: the cache's length before this call.
struct Frontier {
  SymInt scalar = 0;  ///< for all of the batch
  Tensor each;        ///< i64[B, 1, 1, 1] where each has its own; else undefined
};

class AttentionOp {
 public:
  explicit AttentionOp(const Node& node) : node_(node) {
    check_ranks();
    q_ = by_heads(node, node.tensor(0), "q_num_heads");
    k_ = by_heads(node, node.tensor(1), "kv_num_heads");
    v_ = by_heads(node, node.tensor(2), "kv_num_heads");
    if (node.has(4) != node.has(5))
      node.malformed("past_key and past_value", "both or neither", "one of them");
    if (node.has(6) && node.has(4))
      node.malformed("nonpad_kv_seqlen", "no past_key beside it", "both");
    if (node.has(4)) {
      frontier_.scalar = node.tensor(4).size(2);
      k_ = concat({node.tensor(4), k_}, 2);
      v_ = concat({node.tensor(5), v_}, 2);
    }
    if (node.has(6)) {
      const Tensor lengths = cast(node.tensor(6), i64);
      lengths_ = reshape(lengths, {lengths.size(0), 1, 1, 1});
      frontier_.each = lengths_ - size_tensor(q_.size(2));
    }
    read_mask();
  }

  Outputs convert() {
    const Tensor y = attention(q_, k_, v_, mask(), causal_, scale(), softcap());
    Outputs outputs{node_.tensor(0).rank() == 4 ? y : join_heads(y)};
    if (node_.output_count() > 1) outputs.emplace_back(k_);
    if (node_.output_count() > 2) outputs.emplace_back(v_);
    if (node_.wants_output(3)) outputs.emplace_back(scores());
    return outputs;
  }

 private:
  void check_ranks() const {
    for (std::size_t k = 0; k < 3; ++k) {
      const std::int64_t rank = node_.value(k).rank();
      if (rank != node_.value(0).rank() || (rank != 3 && rank != 4))
        node_.malformed("Q, K and V", "three dimensions each, or four",
                        std::to_string(rank) + " of input " + std::to_string(k));
    }
  }

  double scale() const { return node_.number("scale", 0); }
  double softcap() const { return node_.number("softcap", 0); }

  Tensor key_positions() const { return iota({1, 1, 1, k_.size(2)}, 3); }

  /// i64[1 or B, 1, Lq, 1]
  Tensor query_positions() const {
    const Tensor within = iota({1, 1, q_.size(2), 1}, 2);
    return within + (frontier_.each.defined() ? frontier_.each : size_tensor(frontier_.scalar));
  }

  void hide_all_but(const Tensor& seen) {
    seen_ = seen_.defined() ? logical_and(seen_, seen) : seen;
  }

  /// Sets which keys a query sees, and what is added to scores.
  void read_mask() {
    const bool is_causal = node_.integer("is_causal", 0) != 0;
    // The op's own causal mask ends with the last query and the last key.
    causal_ = is_causal && !frontier_.each.defined() && k_.size(2) - q_.size(2) == frontier_.scalar;
    if (is_causal && !causal_) hide_all_but(less_equal(key_positions(), query_positions()));
    const std::int64_t left = window("left_window_size");
    const std::int64_t right = window("right_window_size");
    if (left >= 0) hide_all_but(greater_equal(key_positions(), query_positions() - left));
    if (right >= 0) hide_all_but(less_equal(key_positions(), query_positions() + right));
    if (lengths_.defined()) hide_all_but(less(key_positions(), lengths_));
    if (!node_.has(3)) return;
    const Tensor given = padded(node_.tensor(3));
    if (given.dtype() == boolean)
      hide_all_but(given);
    else
      added_ = given;
  }

  std::int64_t window(std::string_view name) const {
    const std::int64_t size = node_.integer(name, -1);
    if (size < -1) node_.malformed(std::string(name), "-1 or more", std::to_string(size));
    return size;
  }

  /// A mask for the first keys hides the others.
  Tensor padded(const Tensor& mask) const {
    if (mask.rank() == 0 || mask.size(-1) == k_.size(2)) return mask;
    SymInts low(static_cast<std::size_t>(mask.rank()), 0);
    SymInts high = low;
    high.back() = k_.size(2) - mask.size(-1);
    if (mask.dtype() == boolean) return pad(mask, low, high, Tensor::scalar(boolean, 0));
    return pad(mask, low, high, -std::numeric_limits<double>::infinity());
  }

  /// What attention() takes: bool, added, or undefined.
  Tensor mask() const {
    if (!seen_.defined() || !added_.defined()) return seen_.defined() ? seen_ : added_;
    return where(seen_, added_, -std::numeric_limits<double>::infinity());
  }

  /// Output 3, which is there to look at: scores as they are on the way, or the weights.
  Tensor scores() const {
    const std::int64_t mode = node_.integer("qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
      node_.malformed("qk_matmul_output_mode", "0 to 3", std::to_string(mode));
    Tensor x = matmul(q_, transpose(repeat_heads(k_, q_.size(1)), 2, 3));
    x = scale() != 0 ? x * scale() : x * rsqrt(cast(size_tensor(q_.size(3)), x.dtype()));
    if (mode >= 1 && softcap() != 0) x = tanh(x / softcap()) * softcap();
    if (mode >= 2) x = with_mask(x);
    if (mode < 3) return x;
    const Tensor weights = exp(x - where(is_hidden(amax(x, {-1}, true)), 0.0, amax(x, {-1}, true)));
    const Tensor total = sum(weights, {-1}, true);
    return weights / where(equal(total, 0.0), 1.0, total);
  }

  static Tensor is_hidden(const Tensor& score) {
    return equal(score, -std::numeric_limits<double>::infinity());
  }

  Tensor with_mask(Tensor x) const {
    if (added_.defined()) x = x + added_;
    Tensor seen = seen_;
    if (causal_) {
      const Tensor earlier = less_equal(key_positions(), query_positions());
      seen = seen.defined() ? logical_and(seen, earlier) : earlier;
    }
    return seen.defined() ? where(seen, x, -std::numeric_limits<double>::infinity()) : x;
  }

  const Node& node_;
  Tensor q_, k_, v_;
  Frontier frontier_;
  Tensor lengths_;  ///< i64[B, 1, 1, 1] or undefined
  bool causal_ = false;
  Tensor seen_, added_;
};

Outputs convert_attention(const Node& node) { return AttentionOp(node).convert(); }

/// Inputs: X, cos_cache, sin_cache, position_ids.
Outputs rotary_embedding(const Node& node) {
  const Tensor x = node.tensor(0);
  Tensor cosines = node.tensor(1);
  Tensor sines = node.tensor(2);
  if (node.has(3)) {
    cosines = gather(cosines, node.tensor(3), 0);
    sines = gather(sines, node.tensor(3), 0);
  }
  if (cosines.rank() != 3)
    node.malformed("cos_cache", "three dimensions, or two with position_ids",
                   std::to_string(node.value(1).rank()));
  const Rotary rotary{.cosines = cosines,
                      .sines = sines,
                      .size = node.integer("rotary_embedding_dim", 0),
                      .interleaved = node.integer("interleaved", 0) != 0};
  return {rotated(node, x, node.integer("num_heads", 0), rotary)};
}

/// Inputs: past_cache, update, write_indices.
Outputs tensor_scatter(const Node& node) {
  const Tensor cache = node.tensor(0);
  const Tensor update = node.tensor(1);
  if (update.rank() != cache.rank())
    node.malformed("update", std::to_string(cache.rank()) + " dimensions",
                   std::to_string(update.rank()));
  const std::int64_t axis = node.axis(node.integer("axis", -2), cache.rank());
  if (axis == 0) node.malformed("axis", "one behind the batch", "0");
  const std::string mode = node.string("mode", "linear");
  if (mode != "linear" && mode != "circular") node.malformed("mode", "linear or circular", mode);
  SymInts along(static_cast<std::size_t>(cache.rank()), 1);
  along[static_cast<std::size_t>(axis)] = update.size(axis);
  Tensor positions = iota(along, axis);
  if (node.has(2)) {
    SymInts across(static_cast<std::size_t>(cache.rank()), 1);
    across[0] = cache.size(0);
    positions = positions + reshape(cast(node.tensor(2), i64), across);
  }
  if (mode == "circular") positions = mod(positions, size_tensor(cache.size(axis)));
  return {one("scatter_elements", {cache, expand(positions, update.shape()), update},
              {{"axis", axis}})};
}

/// Inputs: input [B, C, L], weight [C, 1, k], bias, past_state [B, C, k - 1].
Outputs causal_conv_with_state(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor w = node.tensor(1);
  if (x.rank() != 3 || w.rank() != 3)
    node.malformed("input and weight", "three dimensions each",
                   std::to_string(x.rank()) + " and " + std::to_string(w.rank()));
  const SymInt before = w.size(2) - 1;
  const Tensor past =
      node.has(3) ? node.tensor(3) : zeros(x.dtype(), {x.size(0), x.size(1), before});
  const Tensor whole = concat({past, x}, 2);
  const Tensor y = conv(whole, w, node.optional(2), {1}, {0}, {0}, w.size(0).value());
  const std::string function = node.string("activation", "none");
  if (function != "none" && function != "silu" && function != "swish")
    node.malformed("activation", "none, silu or swish", function);
  return {function == "none" ? y : silu(y), slice(whole, 2, whole.size(2) - before, whole.size(2))};
}

/// LinearAttention: a state of [d_k, d_v] for each head of keys, read and written at each step.
class LinearAttention {
 public:
  explicit LinearAttention(const Node& node)
      : node_(node),
        heads_(node.integer("q_num_heads", 0)),
        shared_(node.integer("kv_num_heads", 0)) {
    const std::string rule = node.string("update_rule", "gated_delta");
    const bool known =
        rule == "linear" || rule == "gated" || rule == "delta" || rule == "gated_delta";
    if (!known) node.malformed("update_rule", "linear, gated, delta or gated_delta", rule);
    is_gated_ = rule.starts_with("gated");
    corrects_ = rule.ends_with("delta");
    if (is_gated_ != node.has(4))
      node.malformed("decay", is_gated_ ? "the input, with " + rule : "none, with " + rule,
                     is_gated_ ? "none" : "an input");
    if (corrects_ != node.has(5))
      node.malformed("beta", corrects_ ? "the input, with " + rule : "none, with " + rule,
                     corrects_ ? "none" : "an input");
    if (shared_ < 1 || heads_ % shared_ != 0)
      node.malformed("q_num_heads and kv_num_heads", "a multiple, and at least one",
                     std::to_string(heads_) + " and " + std::to_string(shared_));
    dtype_ = promote(node.value(0).dtype(), f32);
  }

  Outputs convert() {
    const Tensor q = steps(0, heads_);
    const Tensor v = steps(2, shared_);
    const SymInts sizes = {q.size(1), shared_, q.size(3), v.size(3)};
    std::vector<Tensor> scanned{q, steps(1, shared_), v};
    if (is_gated_) scanned.push_back(decay(q.size(3)));
    if (corrects_) scanned.push_back(steps(5, node_.tensor(5).size(2).value()));
    const Tensor start = node_.has(3) ? cast(node_.tensor(3), dtype_) : zeros(dtype_, sizes);
    const auto body = [&](const std::vector<Tensor>& carry, const std::vector<Tensor>& slices) {
      const Tensor next = written(carry[0], slices);
      return std::pair(std::vector<Tensor>{next}, std::vector<Tensor>{read(next, slices[0])});
    };
    auto [carry, stacked] = scan(std::vector<Tensor>{start}, scanned, body);
    // [T, B, H, Dv] to [B, T, H * Dv]
    const Tensor out = permute(stacked[0], {1, 0, 2, 3});
    const DType kept = node_.value(node_.has(3) ? 3 : 0).dtype();
    return {cast(reshape(out, {out.size(0), out.size(1), out.size(2) * out.size(3)}),
                 node_.value(0).dtype()),
            cast(carry[0], kept)};
  }

 private:
  /// [T, B, heads, D] of input k, [B, T, heads * D].
  Tensor steps(std::size_t k, std::int64_t heads) const {
    const Tensor x = node_.tensor(k);
    if (x.rank() != 3)
      node_.malformed("input " + std::to_string(k), "three dimensions", std::to_string(x.rank()));
    return cast(permute(split_heads(node_, x, heads, "the heads"), {2, 0, 1, 3}), dtype_);
  }

  /// One number for a head, or one for each of its rows.
  Tensor decay(const SymInt& rows) const {
    const Tensor x = node_.tensor(4);
    const SymInt size = x.rank() == 3 ? x.size(2) : SymInt(0);
    if (!(size == SymInt(shared_)) && !(size == shared_ * rows))
      node_.malformed("decay", "kv_num_heads numbers a step, or kv_num_heads * d_k",
                      listed(x.shape()));
    return exp(steps(4, shared_));
  }

  Tensor written(Tensor state, const std::vector<Tensor>& slices) const {
    const Tensor key = unsqueeze(slices[1], 3);  // [B, H, Dk, 1]
    Tensor value = unsqueeze(slices[2], 2);      // [B, H, 1, Dv]
    if (is_gated_) state = state * unsqueeze(slices[3], 3);
    if (corrects_) {
      const Tensor kept = sum(state * key, {2}, true);
      value = unsqueeze(slices.back(), 3) * (value - kept);
    }
    return state + key * value;
  }

  Tensor read(const Tensor& state, const Tensor& query) const {
    const double given = node_.number("scale", 0);
    const Tensor weighted = sum(unsqueeze(query, 3) * repeat_heads(state, heads_), {2});
    if (given != 0) return weighted * given;
    return weighted * rsqrt(cast(size_tensor(query.size(2)), dtype_));
  }

  const Node& node_;
  const std::int64_t heads_, shared_;
  bool is_gated_ = false, corrects_ = false;
  DType dtype_ = f32;
};

Outputs linear_attention(const Node& node) { return LinearAttention(node).convert(); }

}  // namespace

Tensor split_heads(const Node& node, const Tensor& x, std::int64_t heads, std::string_view name) {
  if (heads < 1) node.malformed(std::string(name), "1 or more", std::to_string(heads));
  const SymInt width = x.size(2);
  if (!width.is_symbolic() && width.value() % heads != 0)
    node.malformed(std::string(name), "a divisor of " + std::to_string(width.value()),
                   std::to_string(heads));
  return permute(reshape(x, {x.size(0), x.size(1), heads, width / heads}), {0, 2, 1, 3});
}

Tensor join_heads(const Tensor& x) {
  return reshape(permute(x, {0, 2, 1, 3}), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

Tensor repeat_heads(const Tensor& x, const SymInt& heads) {
  if (x.size(1) == heads) return x;
  const Tensor apart = unsqueeze(x, 2);
  const SymInts sizes = {x.size(0), x.size(1), heads / x.size(1), x.size(2), x.size(3)};
  return reshape(expand(apart, sizes), {x.size(0), heads, x.size(2), x.size(3)});
}

Tensor rotated(const Node& node, const Tensor& x, std::int64_t heads, const Rotary& rotary) {
  if (x.rank() == 3) {
    // Heads stay where they are, between the positions and the numbers of one.
    if (heads < 1) node.malformed("num_heads", "1 or more", std::to_string(heads));
    const Tensor apart = reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
    return reshape(
        rotated(node, apart, unsqueeze(rotary.cosines, 2), unsqueeze(rotary.sines, 2), rotary),
        x.shape());
  }
  if (x.rank() != 4) node.malformed("X", "three dimensions or four", std::to_string(x.rank()));
  return rotated(node, x, unsqueeze(rotary.cosines, 1), unsqueeze(rotary.sines, 1), rotary);
}

Tensor rotated(const Node& node, const Tensor& x, const Tensor& cosines, const Tensor& sines,
               const Rotary& rotary) {
  const SymInt size = rotary.size != 0 ? SymInt(rotary.size) : x.size(3);
  const SymInt half = size / 2;
  if (!(cosines.size(-1) == half) || !(sines.size(-1) == half))
    node.malformed("cos_cache and sin_cache", "rows of half the size that is rotated",
                   listed({cosines.size(-1), sines.size(-1)}));
  const Tensor turned = slice(x, 3, 0, size);
  SymInts pairs = turned.shape();
  pairs.back() = half;
  pairs.insert(rotary.interleaved ? pairs.end() : pairs.end() - 1, 2);
  const std::int64_t axis = rotary.interleaved ? 4 : 3;
  const Tensor apart = reshape(turned, pairs);
  const Tensor real = squeeze(slice(apart, axis, 0, 1), axis);
  const Tensor imaginary = squeeze(slice(apart, axis, 1, 2), axis);
  const Tensor first = real * cosines - imaginary * sines;
  const Tensor second = real * sines + imaginary * cosines;
  const Tensor result =
      rotary.interleaved
          ? reshape(concat({unsqueeze(first, 4), unsqueeze(second, 4)}, 4), turned.shape())
          : concat({first, second}, 3);
  if (size == x.size(3)) return result;
  return concat({result, slice(x, 3, size, x.size(3))}, 3);
}

std::span<const Converter> attention_converters() {
  static constexpr Converter kConverters[] = {
      {"Attention", convert_attention},      {"CausalConvWithState", causal_conv_with_state},
      {"LinearAttention", linear_attention}, {"RotaryEmbedding", rotary_embedding},
      {"TensorScatter", tensor_scatter},
  };
  return kConverters;
}

}  // namespace heddle::onnx
