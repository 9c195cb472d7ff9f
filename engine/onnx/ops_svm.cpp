// Support vector machines of ai.onnx.ml.
#include <algorithm>
#include <numeric>

#include "engine/onnx/converters.h"
#include "engine/onnx/scores.h"

namespace heddle::onnx {

namespace {

/// The kernel of each row and each support vector: [n, vectors].
Tensor kernels(const Node& node, const Tensor& x, const Tensor& vectors) {
  const std::string kind = node.string("kernel_type", "LINEAR");
  std::vector<double> parameters = node.numbers("kernel_params");
  parameters.resize(3);
  const double gamma = parameters[0];
  const Tensor products = matmul(x, transpose(vectors, 0, 1));
  if (kind == "LINEAR") return products;
  if (kind == "POLY") return pow(products * gamma + parameters[1], parameters[2]);
  if (kind == "SIGMOID") return tanh(products * gamma + parameters[1]);
  if (kind != "RBF") node.malformed("kernel_type", "LINEAR, POLY, RBF or SIGMOID", kind);
  // Differences, not |x|^2 + |v|^2 - 2xv: that would cancel where they are near.
  const Tensor apart = unsqueeze(x, 1) - vectors;
  return exp(sum(apart * apart, {2}) * -gamma);
}

Outputs svm_regressor(const Node& node) {
  const Tensor x = rows_of(node);
  const std::int64_t count = node.integer("n_supports", 0);
  const std::vector<double> coefficients = node.numbers("coefficients");
  const Tensor weights = row_of(coefficients);
  Tensor score;
  if (count == 0) {
    score = matmul(x, unsqueeze(weights, 1));
  } else {
    const std::vector<double> vectors = node.numbers("support_vectors");
    const auto numbers = static_cast<std::int64_t>(vectors.size());
    if (count < 0 || numbers % count != 0 ||
        static_cast<std::int64_t>(coefficients.size()) != count)
      node.malformed("n_supports", "so many support vectors and coefficients",
                     std::to_string(count));
    const Tensor rows = reshape(row_of(vectors), {count, numbers / count});
    score = matmul(kernels(node, x, rows), unsqueeze(weights, 1));
  }
  const std::vector<double> rho = node.numbers("rho");
  if (rho.empty()) node.malformed("rho", "a number", "none");
  score = score + rho[0];
  if (node.integer("one_class", 0) != 0) return {where(greater(score, 0.0), 1.0, -1.0)};
  return {transformed(node, score, node.string("post_transform", "NONE"))};
}

/// The votes of classes i < j among support vectors that lie class by class.
class Pairs {
 public:
  /// @param counts  support vectors of each class
  Pairs(const Node& node, const Ints& counts) : classes_(counts.size()) {
    const std::vector<double> coefficients = node.numbers("coefficients");
    const std::int64_t vectors = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (std::ranges::any_of(counts, [](std::int64_t count) { return count < 0; }) || vectors < 1 ||
        static_cast<std::int64_t>(coefficients.size()) != (classes() - 1) * vectors)
      node.malformed("coefficients", "one less than there are classes for each support vector",
                     std::to_string(coefficients.size()));
    const std::vector<double> rho = node.numbers("rho");
    if (static_cast<std::int64_t>(rho.size()) != count())
      node.malformed("rho", std::to_string(count()) + ", one for each pair of classes",
                     std::to_string(rho.size()));
    weights_ = Tensor::zeros(f32, {vectors, count()});
    bias_ = row_of(rho);
    first_ = Tensor::zeros(f32, {count(), classes()});
    second_ = Tensor::zeros(f32, {count(), classes()});
    std::vector<std::int64_t> begins{0};
    for (const std::int64_t each : counts) begins.push_back(begins.back() + each);
    std::int64_t pair = 0;
    for (std::int64_t i = 0; i < classes(); ++i)
      for (std::int64_t j = i + 1; j < classes(); ++j, ++pair) {
        // Row j - 1 has what class i's vectors weigh against j, row i what class j's weigh against i.
        for (const auto& [of, row] : {std::pair(i, j - 1), std::pair(j, i)})
          for (auto k = begins[static_cast<std::size_t>(of)];
               k < begins[static_cast<std::size_t>(of) + 1]; ++k)
            weights_.data_as<float>()[k * count() + pair] =
                static_cast<float>(coefficients[static_cast<std::size_t>(row * vectors + k)]);
        first_.data_as<float>()[pair * classes() + i] = 1;
        second_.data_as<float>()[pair * classes() + j] = 1;
      }
  }

  std::int64_t classes() const { return static_cast<std::int64_t>(classes_); }
  std::int64_t count() const { return classes() * (classes() - 1) / 2; }
  /// [n, pairs]: the first class of a pair wins where it is above 0.
  Tensor scores(const Tensor& kernels) const { return matmul(kernels, weights_) + bias_; }
  /// Whichever of the pair's classes is first, its share of the two: [n, pairs]. Probabilities of all classes: [n, classes], which
  /// minimise the sum over pairs of (r_ji p_i - r_ij p_j)^2.
  /// Source: Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004, section 4.2.
  Tensor coupled(const Tensor& shares) const {
    const std::int64_t k = classes();
    const SymInt rows = shares.size(0);
    constexpr double kLeast = 1e-7;
    const Tensor first = maximum(minimum(shares, 1.0 - kLeast), kLeast);
    const Tensor r =
        reshape(matmul(first, places(false)) + matmul(1.0 - first, places(true)), {rows, k, k});
    const Tensor transposed = transpose(r, 1, 2);
    const Tensor diagonal = unsqueeze(sum(r * r, {1}), 2) * identity();
    // Q p = b (1, …, 1) where Q = diagonal - r rT. Ones are added to Q, which only scales p, so that no pivot is 0.
    const Tensor q = diagonal - r * transposed + 1.0;
    Tensor both = concat({q, expand(Tensor::scalar(f32, 1), {rows, k, 1})}, 2);
    for (std::int64_t s = 0; s < k; ++s) {
      const Tensor row = slice(both, 1, s, s + 1);
      const Tensor pivot = row / slice(row, 2, s, s + 1);
      const Tensor others = both - slice(both, 2, s, s + 1) * pivot;
      both = where(greater(slice(identity(), 1, s, s + 1), 0.0), pivot, others);
    }
    const Tensor p = reshape(slice(both, 2, k, k + 1), {rows, k});
    return p / sum(p, {1}, true);
  }

  /// The class numbers [n] that win most pairs.
  Tensor winners(const Tensor& scores) const {
    const Tensor wins = cast(greater(scores, 0.0), f32);
    return argmax(matmul(wins, first_) + matmul(1.0 - wins, second_), 1);
  }

 private:
  Tensor identity() const {
    Tensor one = Tensor::zeros(f32, {classes(), classes()});
    for (std::int64_t i = 0; i < classes(); ++i) one.data_as<float>()[i * (classes() + 1)] = 1;
    return one;
  }
  /// [pairs, classes * classes]: 1 where a pair's entry is in a matrix, or its transpose.
  Tensor places(bool turned) const {
    const std::int64_t k = classes();
    Tensor one = Tensor::zeros(f32, {count(), k * k});
    std::int64_t pair = 0;
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = i + 1; j < k; ++j, ++pair)
        one.data_as<float>()[pair * k * k + (turned ? j * k + i : i * k + j)] = 1;
    return one;
  }

  std::size_t classes_;
  Tensor weights_, bias_, first_, second_;
};

Outputs svm_classifier(const Node& node) {
  const Labels labels(node, "classlabels_ints", "classlabels_strings");
  const std::string post_transform = node.string("post_transform", "NONE");
  const Ints counts = node.integers("vectors_per_class");
  if (counts.empty()) node.unsupported("classes without support vectors");
  if (post_transform == "PROBIT") node.unsupported("post_transform PROBIT");
  if (static_cast<std::int64_t>(counts.size()) != labels.count || labels.count < 2)
    node.malformed("vectors_per_class", "one for each of two labels or more",
                   std::to_string(counts.size()));
  const Pairs pairs(node, counts);
  const std::vector<double> vectors = node.numbers("support_vectors");
  const std::int64_t count = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto numbers = static_cast<std::int64_t>(vectors.size());
  if (numbers == 0 || numbers % count != 0)
    node.malformed("support_vectors", "features of " + std::to_string(count) + " vectors",
                   std::to_string(numbers));
  const Tensor rows = reshape(row_of(vectors), {count, numbers / count});
  const Tensor scores = pairs.scores(kernels(node, rows_of(node), rows));
  const Value label = labels.of(pairs.winners(scores));
  const std::vector<double> slope = node.numbers("prob_a");
  const std::vector<double> shift = node.numbers("prob_b");
  if (!slope.empty()) {
    const auto wanted = static_cast<std::size_t>(pairs.count());
    if (slope.size() != wanted || shift.size() != wanted)
      node.malformed("prob_a", std::to_string(wanted) + ", as prob_b",
                     std::to_string(slope.size()));
    // Of each pair by Platt's method. ONNX Runtime stops at 0.005 / classes of what couples them, where this goes on.
    const Tensor first = 1.0 - sigmoid(scores * row_of(slope) + row_of(shift));
    const Tensor all = labels.count == 2 ? concat({first, 1.0 - first}, 1) : pairs.coupled(first);
    return {label, transformed(node, all, post_transform)};
  }
  if (labels.count > 2) return {label, transformed(node, scores, post_transform)};
  const bool squeezes = post_transform == "LOGISTIC";
  const bool is_plain = post_transform == "NONE";
  const Tensor both = concat({squeezes || is_plain ? -scores : 1.0 - scores, scores}, 1);
  return {label, squeezes ? sigmoid(both) : both};
}

}  // namespace

std::span<const Converter> svm_converters() {
  static constexpr Converter kConverters[] = {
      {"SVMClassifier", svm_classifier},
      {"SVMRegressor", svm_regressor},
  };
  return kConverters;
}

}  // namespace heddle::onnx
