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

Tensor row_of(const Ints& numbers) {
  Tensor tensor = Tensor::empty(i64, {static_cast<std::int64_t>(numbers.size())});
  std::copy(numbers.begin(), numbers.end(), tensor.data_as<std::int64_t>());
  return tensor;
}

Tensor row_of(const std::vector<double>& numbers, DType dtype) {
  Tensor tensor = Tensor::empty(f32, {static_cast<std::int64_t>(numbers.size())});
  for (std::size_t k = 0; k < numbers.size(); ++k)
    tensor.data_as<float>()[k] = static_cast<float>(numbers[k]);
  return dtype == f32 ? tensor : cast(tensor, dtype);
}

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

Labels::Labels(const Node& node, const char* ints, const char* strings) {
  const Ints numbers = node.integers(ints);
  const std::vector<std::string> names = node.strings(strings);
  if (numbers.empty() == names.empty())
    node.malformed(ints, "labels, either numbers or strings", numbers.empty() ? "none" : "both");
  are_text = numbers.empty();
  all = are_text ? node.codes_of(names) : row_of(numbers);
  count = all.count();
}

Value Labels::of(const Tensor& classes) const {
  const Value found = gather(all, classes);
  return are_text ? found.as_text() : found;
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
