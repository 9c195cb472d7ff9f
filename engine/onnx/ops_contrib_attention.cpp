// Attention of the domain com.microsoft, as exporters and optimisers of transformers write it, and the embeddings and rotary
// embeddings beside it.

#include <limits>

#include "engine/onnx/attention.h"
#include "engine/onnx/converters.h"
#include "engine/onnx/quantised.h"

namespace heddle::onnx {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

std::int64_t heads_of(const Node& node, std::string_view name = "num_heads") {
  const std::int64_t heads = node.integer(name, 0);
  if (heads < 1) node.malformed(std::string(name), "1 or more", std::to_string(heads));
  return heads;
}

struct Operands {
  Tensor q, k, v;  ///< [B, H, L, D] each
};

Tensor biased(const Tensor& x, const Tensor& bias, const SymInt& from, const SymInt& size) {
  return bias.defined() ? x + slice(bias, 0, from, from + size) : x;
}

/// Part `k` of x [B, L, H, parts, D], as [B, H, L, D].
Tensor packed_part(const Tensor& x, std::int64_t k) {
  return permute(squeeze(slice(x, 3, k, k + 1), 3), {0, 2, 1, 3});
}

/// Keys i64[1, 1, 1, T] and queries i64[1, 1, S, 1] by number.
Tensor numbered_keys(const SymInt& keys) { return iota({1, 1, 1, keys}, 3); }
Tensor numbered_queries(const SymInt& queries) { return iota({1, 1, queries, 1}, 2); }

Tensor plus(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return a + b;
}

/// What MultiHeadAttention and Attention add to scores: a number that hides where a mask says so.
class AddedMask {
 public:
  AddedMask(const Node& node, DType dtype, const SymInt& keys)
      : node_(node), dtype_(dtype), keys_(keys), hides_(node.number("mask_filter_value", -10000)) {}

  /// Lengths [B], or marks [B, T], [B, S, T] or [B, 1, S, T] that are not 0 where a key is seen.
  Tensor of_input(std::size_t k) const {
    if (!node_.has(k)) return {};
    const Tensor mask = node_.tensor(k);
    if (mask.rank() == 1) {
      const Tensor lengths = reshape(cast(mask, i64), {mask.size(0), 1, 1, 1});
      return hiding_all_but(less(numbered_keys(keys_), lengths));
    }
    const Tensor seen = greater(mask, Tensor::scalar_int(mask.dtype(), 0));
    if (mask.rank() == 2) return hiding_all_but(unsqueeze_all(seen, {1, 2}));
    if (mask.rank() == 3) return hiding_all_but(unsqueeze(seen, 1));
    if (mask.rank() != 4)
      node_.malformed("the mask", "one to four dimensions", std::to_string(mask.rank()));
    return hiding_all_but(seen);
  }

 private:
  Tensor hiding_all_but(const Tensor& seen) const {
    return where(seen, Tensor::scalar(dtype_, 0), Tensor::scalar(dtype_, hides_));
  }

  const Node& node_;
  DType dtype_;
  SymInt keys_;
  double hides_;
};

/// Lengths of one dimension count keys from the first; those of [3B + 2] or [2B] say where sequences begin too.
void refuse_other_lengths(const Node& node, std::size_t k, const SymInt& batch) {
  if (!node.has(k) || node.value(k).rank() != 1) return;
  if (!(node.tensor(k).size(0) == batch))
    node.unsupported("a mask of where sequences begin and end");
}

/// Inputs: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value.
Operands operands_of(const Node& node, std::int64_t heads) {
  const Tensor query = node.tensor(0);
  const Tensor bias = node.optional(3);
  if (query.rank() == 5) {
    if (node.has(1) || bias.defined()) node.unsupported("keys or a bias beside packed queries");
    return {packed_part(query, 0), packed_part(query, 1), packed_part(query, 2)};
  }
  if (query.rank() != 3)
    node.malformed("query", "three dimensions, or five", std::to_string(query.rank()));
  const SymInt width = query.size(2);
  Operands all{
      .q = split_heads(node, biased(query, bias, 0, width), heads, "num_heads"), .k = {}, .v = {}};
  const Tensor key = node.tensor(1);
  if (key.rank() == 5) {
    if (bias.defined()) node.unsupported("a bias beside packed keys");
    all.k = packed_part(key, 0);
    all.v = packed_part(key, 1);
    return all;
  }
  const Tensor value = node.tensor(2);
  if (key.rank() == 4 && value.rank() == 4) {
    all.k = key;
    all.v = value;
    return all;
  }
  if (key.rank() != 3 || value.rank() != 3)
    node.malformed("key and value", "three dimensions each, or four",
                   std::to_string(key.rank()) + " and " + std::to_string(value.rank()));
  all.k = split_heads(node, biased(key, bias, width, width), heads, "num_heads");
  all.v = split_heads(node, biased(value, bias, width * 2, value.size(2)), heads, "num_heads");
  return all;
}

Outputs multi_head_attention(const Node& node) {
  for (const std::size_t k : {8u, 9u})
    if (node.has(k)) node.unsupported("past_sequence_length and cache_indirection");
  if (node.wants_output(3)) node.unsupported("the output qk");
  Operands all = operands_of(node, heads_of(node));
  if (node.has(6)) all.k = concat({node.tensor(6), all.k}, 2);
  if (node.has(7)) all.v = concat({node.tensor(7), all.v}, 2);
  refuse_other_lengths(node, 4, all.q.size(0));
  const AddedMask masks(node, all.q.dtype(), all.k.size(2));
  const Tensor added = plus(masks.of_input(4), node.optional(5));
  const bool causal = node.integer("unidirectional", 0) != 0;
  const Tensor y = attention(all.q, all.k, all.v, added, causal, node.number("scale", 0));
  return {join_heads(y), all.k, all.v};
}

/// Which inputs say what keys are seen, which came before, and what is added to scores.
struct AttentionInputs {
  std::size_t mask, past, bias;
};

/// Heads of queries, keys and values that lie behind one another in the last dimension of `all`.
Outputs attended(const Node& node, const Tensor& all, const AttentionInputs& inputs) {
  if (node.integer("do_rotary", 0) != 0) node.unsupported("do_rotary");
  const std::int64_t heads = heads_of(node);
  Ints widths = node.integers("qkv_hidden_sizes");
  if (widths.empty()) widths.assign(3, all.size(2).value() / 3);
  if (widths.size() != 3)
    node.malformed("qkv_hidden_sizes", "three sizes", std::to_string(widths.size()));
  const std::vector<Tensor> parts = split(all, {widths[0], widths[1], widths[2]}, 2);
  const Tensor q = split_heads(node, parts[0], heads, "num_heads");
  Tensor k = split_heads(node, parts[1], heads, "num_heads");
  Tensor v = split_heads(node, parts[2], heads, "num_heads");
  if (node.has(inputs.past)) {
    const Tensor past = node.tensor(inputs.past);
    k = concat({squeeze(slice(past, 0, 0, 1), 0), k}, 2);
    v = concat({squeeze(slice(past, 0, 1, 2), 0), v}, 2);
  }
  refuse_other_lengths(node, inputs.mask, q.size(0));
  const Tensor added =
      plus(AddedMask(node, q.dtype(), k.size(2)).of_input(inputs.mask), node.optional(inputs.bias));
  const bool causal = node.integer("unidirectional", 0) != 0;
  const Tensor y = attention(q, k, v, added, causal, node.number("scale", 0));
  Outputs outputs{join_heads(y)};
  if (node.wants_output(1)) outputs.emplace_back(concat({unsqueeze(k, 0), unsqueeze(v, 0)}, 0));
  return outputs;
}

/// Inputs: input, weights, bias, mask_index, past, attention_bias.
Outputs packed_attention(const Node& node) {
  if (node.has(6)) node.unsupported("past_sequence_length");
  const Tensor all = matmul(node.tensor(0), node.tensor(1));
  return attended(node, node.has(2) ? all + node.tensor(2) : all,
                  {.mask = 3, .past = 4, .bias = 5});
}

/// Inputs: input and weights in bytes, bias, their scales, mask_index, their zero points, past.
Outputs quantised_attention(const Node& node) {
  constexpr std::size_t kNone = 99;
  const Tensor product = matmul(centred(node, 0, 6, true), centred(node, 1, 7, false));
  const Tensor all = cast(product, f32) * (node.tensor(3) * node.tensor(4)) + node.tensor(2);
  return attended(node, all, {.mask = 5, .past = 8, .bias = kNone});
}

/// GroupQueryAttention: keys and values go into caches behind what each sequence has there, and queries see those and
/// what is before them.
class GroupQueryAttention {
 public:
  explicit GroupQueryAttention(const Node& node)
      : node_(node), heads_(heads_of(node)), shared_(heads_of(node, "kv_num_heads")) {
    if (node.has(12) || node.has(13)) node.unsupported("caches in fewer bits");
    if (node.wants_output(3)) node.unsupported("the output output_qk");
    if (node.has(3) != node.has(4))
      node.malformed("past_key and past_value", "both or neither", "one of them");
    read_operands();
    const Tensor last = cast(node.tensor(5), i64);
    const Tensor before = last + 1 - size_tensor(q_.size(2));
    // Of prompts that are padded behind their end nothing is before.
    before_ = reshape(maximum(before, 0), {q_.size(0), 1, 1, 1});
  }

  Outputs convert() {
    if (node_.integer("do_rotary", 0) != 0) rotate();
    const SymInt length = node_.has(3) ? cache_length() : k_.size(2);
    const Tensor k = node_.has(3) ? cached(3, k_, length) : k_;
    const Tensor v = node_.has(3) ? cached(4, v_, length) : v_;
    const Tensor sink = sinks();
    const double scale = node_.number("scale", 0);
    const double softcap = node_.number("softcap", 0);
    if (!sink.defined())
      return {join_heads(attention(q_, k, v, mask_of(k.size(2)), false, scale, softcap)), k, v};
    // One key more, all zeros, so that its score is what is added.
    const SymInt keys = k.size(2) + 1;
    Tensor added = mask_of(keys);
    if (added.dtype() == boolean)
      added =
          where(added, Tensor::scalar(q_.dtype(), 0), Tensor::scalar(q_.dtype(), kMinusInfinity));
    added = where(equal(numbered_keys(keys), size_tensor(k.size(2))), sink, added);
    const Tensor y =
        attention(q_, lengthened(k, 2, keys), lengthened(v, 2, keys), added, false, scale, softcap);
    return {join_heads(y), k, v};
  }

 private:
  /// Which of `count` keys a query sees, or what is added to their scores.
  Tensor mask_of(const SymInt& count) const {
    const Tensor at = before_ + numbered_queries(q_.size(2));
    const Tensor keys = numbered_keys(count);
    Tensor mask = less_equal(keys, at);
    const std::int64_t window = node_.integer("local_window_size", -1);
    if (window > 0) mask = logical_and(mask, greater(keys, at - window));
    if (node_.has(10)) mask = where(mask, lengthened(node_.tensor(10), 3, count), kMinusInfinity);
    return mask;
  }

  /// [1, H, 1, 1], the score of a key without a value that each query sees; undefined where there is none.
  Tensor sinks() const {
    if (node_.has(11)) {
      const Tensor sink = node_.tensor(11);
      if (sink.rank() != 1 || sink.size(0) != heads_)
        node_.malformed("head_sink", std::to_string(heads_) + " numbers", listed(sink.shape()));
      return reshape(cast(sink, q_.dtype()), {1, heads_, 1, 1});
    }
    if (node_.integer("smooth_softmax", 0) <= 0) return {};
    return expand(Tensor::scalar(q_.dtype(), 0), {1, heads_, 1, 1});
  }

  void read_operands() {
    const Tensor query = node_.tensor(0);
    if (query.rank() != 3)
      node_.malformed("query", "three dimensions", std::to_string(query.rank()));
    if (node_.has(1)) {
      q_ = split_heads(node_, query, heads_, "num_heads");
      k_ = split_heads(node_, node_.tensor(1), shared_, "kv_num_heads");
      v_ = split_heads(node_, node_.tensor(2), shared_, "kv_num_heads");
      return;
    }
    const Tensor all = split_heads(node_, query, heads_ + 2 * shared_, "num_heads");
    const std::vector<Tensor> parts = split(all, {heads_, shared_, shared_}, 1);
    q_ = parts[0];
    k_ = parts[1];
    v_ = parts[2];
  }

  void rotate() {
    const Tensor at = node_.has(9) ? cast(node_.tensor(9), i64)
                                   : reshape(before_, {q_.size(0), 1}) + iota({1, q_.size(2)}, 1);
    const Tensor cosines = gather(node_.tensor(7), at, 0);
    const Tensor sines = gather(node_.tensor(8), at, 0);
    const std::int64_t size = 2 * cosines.size(2).value();
    const Rotary rotary{cosines, sines, size, node_.integer("rotary_interleaved", 0) != 0};
    q_ = rotated(node_, q_, heads_, rotary);
    k_ = rotated(node_, k_, shared_, rotary);
  }

  /// How long caches are: as all that is seen, or as they are where they have room for more.
  SymInt cache_length() const {
    const SymInt past = node_.tensor(3).size(2);
    if (!(node_.tensor(4).size(2) == past))
      node_.malformed("past_value", "as many positions as past_key",
                      listed(node_.tensor(4).shape()));
    const auto known = node_.value(6).ints();
    if (!known) return max(as_size(cast(node_.tensor(6), i64)), past);
    const SymInt total = node_.known_size(6, "total_sequence_length");
    return total <= past ? past : total;
  }

  /// The cache of input k, `length` long, with `fresh` behind what each sequence has there.
  Tensor cached(std::size_t k, const Tensor& fresh, const SymInt& length) const {
    const Tensor past = node_.tensor(k);
    const bool fits = node_.value(6).ints() && length == past.size(2);
    return scattered(fits ? past : lengthened(past, 2, length), fresh);
  }

  Tensor scattered(const Tensor& cache, const Tensor& fresh) const {
    const Tensor at = before_ + numbered_queries(fresh.size(2));
    return one("scatter_elements", {cache, expand(at, fresh.shape()), fresh},
               {{"axis", std::int64_t{2}}});
  }

  /// `x` with zeros behind, to `size` along `axis` of four.
  static Tensor lengthened(const Tensor& x, std::size_t axis, const SymInt& size) {
    SymInts high(4, 0);
    high[axis] = size - x.size(static_cast<std::int64_t>(axis));
    return pad(x, SymInts(4, 0), high);
  }

  const Node& node_;
  const std::int64_t heads_, shared_;
  Tensor q_, k_, v_;
  Tensor before_;  ///< i64[B, 1, 1, 1]: keys that a sequence had before this call
};

Outputs group_query_attention(const Node& node) { return GroupQueryAttention(node).convert(); }

/// Inputs: input, position_ids, cos_cache, sin_cache.
Outputs contrib_rotary_embedding(const Node& node) {
  if (node.integer("is_packed_batching", 0) != 0) node.unsupported("is_packed_batching");
  if (node.number("scale", 1.0) != 1.0) node.unsupported("scale");
  const Tensor x = node.tensor(0);
  if (x.rank() != 3 && x.rank() != 4)
    node.malformed("input", "three dimensions or four", std::to_string(x.rank()));
  Tensor at = cast(node.tensor(1), i64);
  const SymInt length = x.size(x.rank() - 2);
  // One position is the first one's.
  if (at.rank() == 1) at = reshape(at, {1, 1}) + iota({1, length}, 1);
  const Tensor cosines = gather(node.tensor(2), at, 0);
  const Tensor sines = gather(node.tensor(3), at, 0);
  const std::int64_t size = 2 * cosines.size(2).value();
  std::int64_t heads = node.integer("num_heads", 0);
  if (heads == 0 && x.rank() == 3) heads = x.size(2).value() / size;
  const Rotary rotary{cosines, sines, size, node.integer("interleaved", 0) != 0};
  return {rotated(node, x, heads, rotary)};
}

/// Inputs: input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta, mask,
/// position_ids.
Outputs embed_layer_normalization(const Node& node) {
  const Tensor ids = node.tensor(0);
  const Tensor at = node.has(8) ? node.tensor(8) : iota({1, ids.size(1)}, 1);
  Tensor total = gather(node.tensor(2), ids, 0) + gather(node.tensor(3), at, 0);
  if (node.has(1) && node.has(4)) total = total + gather(node.tensor(4), node.tensor(1), 0);
  const Tensor y =
      layer_norm(total, node.tensor(5), node.tensor(6), -1, node.number("epsilon", 1e-12));
  const Tensor seen = node.has(7) ? cast(sum(node.tensor(7), {1}), i32)
                                  : expand(Tensor::scalar_int(i32, 0), {ids.size(0)});
  return {y, seen, total};
}

}  // namespace

std::span<const Converter> contrib_attention_converters() {
  static constexpr Converter kConverters[] = {
      {"Attention", packed_attention},
      {"EmbedLayerNormalization", embed_layer_normalization},
      {"GroupQueryAttention", group_query_attention},
      {"MultiHeadAttention", multi_head_attention},
      {"QAttention", quantised_attention},
      {"RotaryEmbedding", contrib_rotary_embedding},
  };
  return kConverters;
}

}  // namespace heddle::onnx
