// TfIdfVectorizer: how often n-grams of a pool are met.
#include <algorithm>

#include "engine/onnx/converters.h"
#include "engine/onnx/scores.h"

namespace heddle::onnx {

namespace {

/// N-grams of one length, with the columns of the result that count them.
struct Grams {
  std::int64_t length = 0;
  std::int64_t count = 0;
  std::int64_t begin = 0;  ///< in the pool
};

/// The pool's parts, the shortest n-grams first.
std::vector<Grams> grams_of(const Node& node, std::int64_t pool_size) {
  const Ints begins = node.integers("ngram_counts");
  std::vector<Grams> all;
  for (std::size_t k = 0; k < begins.size(); ++k) {
    const std::int64_t end = k + 1 < begins.size() ? begins[k + 1] : pool_size;
    const auto length = static_cast<std::int64_t>(k) + 1;
    if (begins[k] < 0 || end < begins[k] || end > pool_size || (end - begins[k]) % length != 0)
      node.malformed("ngram_counts", "where the n-grams of each length begin in the pool",
                     std::to_string(begins[k]));
    all.push_back({length, (end - begins[k]) / length, begins[k]});
  }
  return all;
}

/// How often each row of x [n, items] has each of so many n-grams: [n, grams].
/// @param step  from an item of an n-gram to the next
Tensor counts_of(const Tensor& x, const Tensor& pool, const Grams& grams, std::int64_t step) {
  const Tensor rows = reshape(slice(pool, 0, grams.begin, grams.begin + grams.count * grams.length),
                              {grams.count, grams.length});
  const SymInt places = max(x.size(1) - (grams.length - 1) * step, 0);
  Tensor is_met;
  for (std::int64_t k = 0; k < grams.length; ++k) {
    const SymInt begin = min(x.size(1), k * step);
    const Tensor items = unsqueeze(slice(x, 1, begin, begin + places), 2);
    const Tensor same = equal(items, reshape(slice(rows, 1, k, k + 1), {grams.count}));
    is_met = k == 0 ? same : logical_and(is_met, same);
  }
  return sum(cast(is_met, f32), {1});
}

/// The columns of `counts` [n, grams], each at its place among those of the result; others are 0.
Tensor in_columns(const Node& node, const Tensor& counts, std::int64_t grams) {
  constexpr std::int64_t kMost = std::int64_t{1} << 22;
  const Ints columns = node.integers("ngram_indexes");
  if (static_cast<std::int64_t>(columns.size()) != grams)
    node.malformed("ngram_indexes", std::to_string(grams) + ", one for each n-gram",
                   std::to_string(columns.size()));
  const auto [least, most] = std::ranges::minmax(columns);
  if (least < 0 || most >= kMost)
    node.malformed("ngram_indexes", "columns of the result",
                   std::to_string(least < 0 ? least : most));
  Ints from(static_cast<std::size_t>(most) + 1, grams);
  for (std::size_t k = 0; k < columns.size(); ++k) {
    std::int64_t& place = from[static_cast<std::size_t>(columns[k])];
    if (place != grams) node.unsupported("n-grams that share a column");
    place = static_cast<std::int64_t>(k);
  }
  const Tensor zero = expand(Tensor::scalar(f32, 0), {counts.size(0), 1});
  return gather(concat({counts, zero}, 1), row_of(from), 1);
}

/// What becomes of counts: themselves, the weights of those that are met, or both multiplied.
Tensor weighted(const Node& node, const Tensor& counts, std::int64_t grams) {
  const std::string mode = node.string("mode", "TF");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    node.malformed("mode", "TF, IDF or TFIDF", mode);
  const std::vector<double> weights = node.numbers("weights");
  if (!weights.empty() && static_cast<std::int64_t>(weights.size()) != grams)
    node.malformed("weights", std::to_string(grams) + ", one for each n-gram",
                   std::to_string(weights.size()));
  const Tensor used = mode == "IDF" ? cast(greater(counts, 0.0), f32) : counts;
  if (mode == "TF" || weights.empty()) return used;
  return used * row_of(weights);
}

Outputs tf_idf_vectorizer(const Node& node) {
  const bool is_text = node.value(0).is_text();
  const Tensor given = node.tensor(0);
  if (given.rank() != 1 && given.rank() != 2)
    node.malformed("X", "one or two dimensions", std::to_string(given.rank()));
  const Ints numbers = node.integers("pool_int64s");
  const std::vector<std::string> strings = node.strings("pool_strings");
  if (is_text ? strings.empty() : numbers.empty())
    node.malformed(is_text ? "pool_strings" : "pool_int64s", "n-grams", "none");
  const Tensor pool = is_text ? node.codes_of(strings) : row_of(numbers);
  const std::int64_t least = node.integer("min_gram_length", 1);
  const std::int64_t most = node.integer("max_gram_length", 1);
  const std::int64_t skips = node.integer("max_skip_count", 0);
  if (least < 1 || most < least || skips < 0)
    node.malformed("max_gram_length", "lengths from 1 on, and skips of 0 or more",
                   std::to_string(least) + " to " + std::to_string(most));
  constexpr std::int64_t kMostSkips = 64;  // of which each is an operation of the graph
  if (skips > kMostSkips) node.unsupported("more than " + std::to_string(kMostSkips) + " skips");
  const Tensor x = cast(given.rank() == 1 ? unsqueeze(given, 0) : given, i64);
  std::vector<Tensor> parts;
  std::int64_t all = 0;
  for (const Grams& grams : grams_of(node, pool.count())) {
    all += grams.count;
    if (grams.count == 0) continue;
    const bool counts = grams.length >= least && grams.length <= most;
    Tensor part = expand(Tensor::scalar(f32, 0), {x.size(0), grams.count});
    for (std::int64_t skip = 0; counts && skip <= (grams.length == 1 ? 0 : skips); ++skip)
      part = part + counts_of(x, pool, grams, skip + 1);
    parts.push_back(part);
  }
  if (parts.empty()) node.malformed("ngram_counts", "n-grams", "none");
  const Tensor result = in_columns(node, weighted(node, concat(parts, 1), all), all);
  return {given.rank() == 1 ? reshape(result, {-1}) : result};
}

}  // namespace

std::span<const Converter> text_converters() {
  static constexpr Converter kConverters[] = {
      {"TfIdfVectorizer", tf_idf_vectorizer, {}, false, Texts::Reads},
  };
  return kConverters;
}

}  // namespace heddle::onnx
