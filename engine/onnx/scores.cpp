#include "engine/onnx/scores.h"

namespace heddle::onnx {

namespace {

/// The inverse of the normal distribution, by Winitzki's approximation of that of erf, as ONNX Runtime computes it.
Tensor probit(const Tensor& p) {
  constexpr double kA = 0.147;
  constexpr double kPi = 3.14159265358979323846;
  const Tensor x = p * 2.0 - 1.0;
  const Tensor logarithm = log((1.0 - x) * (x + 1.0));
  const Tensor half = logarithm * 0.5 + 2.0 / (kPi * kA);
  const Tensor size = sqrt(sqrt(half * half - logarithm * (1.0 / kA)) - half);
  return where(less(x, 0.0), -size, size) * 1.41421356;
}

/// Softmax of the scores that are not 0; those stay 0.
Tensor softmax_of_others(const Tensor& scores) {
  constexpr double kZero = 1e-7;
  const Tensor most = amax(scores, {1}, true);
  const Tensor parts = where(greater(abs(scores), kZero), exp(scores - most), scores * exp(-most));
  return parts / sum(parts, {1}, true);
}

}  // namespace

Tensor as_f32(const Tensor& x) { return x.dtype() == f32 ? x : cast(x, f32); }

Tensor rows_of(const Node& node, bool wide) {
  const Tensor given = node.tensor(0);
  const Tensor x = wide && given.dtype() == f64 ? given : as_f32(given);
  if (x.rank() == 1) return unsqueeze(x, 0);
  if (x.rank() != 2) node.malformed("X", "one or two dimensions", std::to_string(x.rank()));
  return x;
}

Tensor transformed(const Node& node, const Tensor& scores, const std::string& post_transform) {
  if (post_transform == "NONE") return scores;
  if (post_transform == "LOGISTIC") return sigmoid(scores);
  if (post_transform == "SOFTMAX") return softmax(scores, 1);
  if (post_transform == "SOFTMAX_ZERO") return softmax_of_others(scores);
  if (post_transform == "PROBIT") return probit(scores);
  node.malformed("post_transform", "NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT",
                 post_transform);
}

Labels::Labels(const Node& node, const char* ints, const char* strings)
    : numbers(node.integers(ints)) {
  const std::size_t names = node.strings(strings).size();
  if (numbers.empty() == (names == 0))
    node.malformed(ints, "labels, either numbers or strings", numbers.empty() ? "none" : "both");
  count = static_cast<std::int64_t>(numbers.empty() ? names : numbers.size());
}

Tensor Labels::of(const Tensor& classes) const {
  if (numbers.empty()) return {};
  Tensor all = Tensor::empty(i64, {count});
  std::copy(numbers.begin(), numbers.end(), all.data_as<std::int64_t>());
  return gather(all, classes);
}

Outputs two_classes(const Labels& labels, const Tensor& score, double threshold, bool complement,
                    const std::string& post_transform) {
  const Tensor classes = cast(reshape(greater(score, threshold), {score.size(0)}), i64);
  if (post_transform == "PROBIT") return {labels.of(classes), probit(score)};
  const Tensor other = complement ? 1.0 - score : -score;
  const bool squeezes = !complement && post_transform == "LOGISTIC";
  const Tensor both = concat({other, score}, 1);
  return {labels.of(classes), squeezes ? sigmoid(both) : both};
}

}  // namespace heddle::onnx
