// Support vector machines of ai.onnx.ml.
#include <optional>
#include <utility>

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

/// How many support vectors there are in all. @throws ModelError where that is not what coefficients are for.
std::int64_t vectors_of(const Node& node, const Ints& counts, std::size_t coefficients) {
  const auto most = static_cast<std::int64_t>(coefficients);
  std::int64_t vectors = 0;
  for (const std::int64_t count : counts) {
    if (count < 0 || count > most - vectors)
      node.malformed("vectors_per_class", "no more vectors than coefficients",
                     std::to_string(count));
    vectors += count;
  }
  if (vectors == 0 || vectors * (static_cast<std::int64_t>(counts.size()) - 1) != most)
    node.malformed("coefficients", "one less than there are classes for each support vector",
                   std::to_string(most));
  return vectors;
}

/// The pairs (i, j), i < j, of so many classes, in order.
std::vector<std::pair<std::int64_t, std::int64_t>> pairs_of(std::int64_t classes) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::int64_t i = 0; i < classes; ++i)
    for (std::int64_t j = i + 1; j < classes; ++j) pairs.emplace_back(i, j);
  return pairs;
}

/// What each support vector weighs in each pair: [vectors, pairs]. Vectors lie class by class; row j - 1 of the coefficients has what class
/// i's weigh against j, row i what class j's weigh against i.
Tensor weights_of_pairs(const std::vector<double>& coefficients, const Ints& counts,
                        std::int64_t vectors) {
  const auto pairs = pairs_of(static_cast<std::int64_t>(counts.size()));
  const auto columns = static_cast<std::int64_t>(pairs.size());
  std::vector<std::int64_t> begins{0};
  for (const std::int64_t count : counts) begins.push_back(begins.back() + count);
  Tensor weights = Tensor::zeros(f32, {vectors, columns});
  const auto put = [&](std::int64_t column, std::int64_t of, std::int64_t row) {
    const auto at = static_cast<std::size_t>(of);
    for (std::int64_t k = begins[at]; k < begins[at + 1]; ++k)
      weights.data_as<float>()[k * columns + column] =
          static_cast<float>(coefficients[static_cast<std::size_t>(row * vectors + k)]);
  };
  for (std::int64_t column = 0; column < columns; ++column) {
    const auto& [i, j] = pairs[static_cast<std::size_t>(column)];
    put(column, i, j - 1);
    put(column, j, i);
  }
  return weights;
}

/// The class numbers [n] that win most pairs; the first class of a pair does where its score is above 0, else the second.
Tensor winners(const Tensor& scores, std::int64_t classes) {
  const auto pairs = pairs_of(classes);
  Tensor lost = Tensor::zeros(f32, {classes});  // votes where the first class of each pair loses
  Tensor swing = Tensor::zeros(f32, {static_cast<std::int64_t>(pairs.size()), classes});
  for (std::size_t pair = 0; pair < pairs.size(); ++pair) {
    const auto& [i, j] = pairs[pair];
    float* row = swing.data_as<float>() + static_cast<std::int64_t>(pair) * classes;
    row[i] = 1;
    row[j] = -1;
    lost.data_as<float>()[j] += 1;
  }
  return argmax(matmul(cast(greater(scores, 0.0), f32), swing) + lost, 1);
}

/// Shares of pairs [n, pairs], the first class's of each, as matrices r [n, classes, classes]; 0 on the diagonal.
Tensor matrices_of(const Tensor& shares, std::int64_t classes) {
  const auto pairs = pairs_of(classes);
  const auto count = static_cast<std::int64_t>(pairs.size());
  Ints places(static_cast<std::size_t>(classes * classes), 2 * count);
  for (std::int64_t pair = 0; pair < count; ++pair) {
    const auto& [i, j] = pairs[static_cast<std::size_t>(pair)];
    places[static_cast<std::size_t>(i * classes + j)] = pair;
    places[static_cast<std::size_t>(j * classes + i)] = count + pair;
  }
  const SymInt rows = shares.size(0);
  const Tensor zero = expand(Tensor::scalar(f32, 0), {rows, 1});
  return reshape(gather(concat({shares, 1.0 - shares, zero}, 1), row_of(places), 1),
                 {rows, classes, classes});
}

/// Probabilities of all classes [n, classes] from the shares r of pairs: those that minimise the sum over pairs of
/// (r_ji p_i - r_ij p_j)^2.
/// Source: Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004, section 4.2.
Tensor coupled(const Tensor& shares, std::int64_t classes) {
  constexpr double kLeast = 1e-7;
  const Tensor r = matrices_of(maximum(minimum(shares, 1.0 - kLeast), kLeast), classes);
  Tensor identity = Tensor::zeros(f32, {classes, classes});
  for (std::int64_t i = 0; i < classes; ++i) identity.data_as<float>()[i * (classes + 1)] = 1;
  // Q p = b (1, …, 1) where Q = diagonal - r rT. Ones are added to Q, which only scales p, so that no pivot is 0.
  const Tensor diagonal = unsqueeze(sum(r * r, {1}), 2) * identity;
  const Tensor q = diagonal - r * transpose(r, 1, 2) + 1.0;
  const SymInt rows = shares.size(0);
  Tensor both = concat({q, expand(Tensor::scalar(f32, 1), {rows, classes, 1})}, 2);
  for (std::int64_t s = 0; s < classes; ++s) {
    const Tensor row = slice(both, 1, s, s + 1);
    const Tensor pivot = row / slice(row, 2, s, s + 1);
    const Tensor others = both - slice(both, 2, s, s + 1) * pivot;
    both = where(greater(slice(identity, 1, s, s + 1), 0.0), pivot, others);
  }
  const Tensor p = reshape(slice(both, 2, classes, classes + 1), {rows, classes});
  return p / sum(p, {1}, true);
}

/// The scores [n, pairs] of pairs of classes.
Tensor scores_of_pairs(const Node& node, const Ints& counts) {
  const std::vector<double> coefficients = node.numbers("coefficients");
  const std::int64_t vectors = vectors_of(node, counts, coefficients.size());
  const std::vector<double> features = node.numbers("support_vectors");
  const auto numbers = static_cast<std::int64_t>(features.size());
  if (numbers == 0 || numbers % vectors != 0)
    node.malformed("support_vectors", "features of " + std::to_string(vectors) + " vectors",
                   std::to_string(numbers));
  const std::size_t pairs = counts.size() * (counts.size() - 1) / 2;
  const std::vector<double> rho = node.numbers("rho");
  if (rho.size() != pairs)
    node.malformed("rho", std::to_string(pairs) + ", one for each pair of classes",
                   std::to_string(rho.size()));
  const Tensor rows = reshape(row_of(features), {vectors, numbers / vectors});
  return matmul(kernels(node, rows_of(node), rows),
                weights_of_pairs(coefficients, counts, vectors)) +
         row_of(rho);
}

/// Of classes by Platt's method for each pair; nothing where the model has none. ONNX Runtime stops at 0.005 / classes of what couples
/// them, where this goes on.
std::optional<Tensor> probabilities(const Node& node, const Tensor& scores, std::int64_t classes) {
  const std::vector<double> slope = node.numbers("prob_a");
  const std::vector<double> shift = node.numbers("prob_b");
  if (slope.empty()) return {};
  const auto pairs = static_cast<std::size_t>(classes * (classes - 1) / 2);
  if (slope.size() != pairs || shift.size() != pairs)
    node.malformed("prob_a", std::to_string(pairs) + ", as prob_b", std::to_string(slope.size()));
  const Tensor first = 1.0 - sigmoid(scores * row_of(slope) + row_of(shift));
  return classes == 2 ? concat({first, 1.0 - first}, 1) : coupled(first, classes);
}

Outputs svm_classifier(const Node& node) {
  constexpr std::int64_t kMostClasses = 128;  // of tables for each pair of them
  const Labels labels(node, "classlabels_ints", "classlabels_strings");
  const std::string post_transform = node.string("post_transform", "NONE");
  const Ints counts = node.integers("vectors_per_class");
  if (counts.empty()) node.unsupported("classes without support vectors");
  if (post_transform == "PROBIT") node.unsupported("post_transform PROBIT");
  if (static_cast<std::int64_t>(counts.size()) != labels.count || labels.count < 2)
    node.malformed("vectors_per_class", "one for each of two labels or more",
                   std::to_string(counts.size()));
  if (labels.count > kMostClasses)
    node.unsupported("more than " + std::to_string(kMostClasses) + " classes");
  const Tensor scores = scores_of_pairs(node, counts);
  const Value label = labels.of(winners(scores, labels.count));
  if (const auto found = probabilities(node, scores, labels.count))
    return {label, transformed(node, *found, post_transform)};
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
