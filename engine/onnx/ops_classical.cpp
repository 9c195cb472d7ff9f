// Models of ai.onnx.ml but trees, and what prepares features for them.

#include <cmath>
#include <limits>

#include "engine/onnx/converters.h"
#include "engine/onnx/scores.h"

namespace heddle::onnx {

namespace {

Tensor row_of(const std::vector<double>& numbers, DType dtype = f32) {
  Tensor tensor = Tensor::empty(f32, {static_cast<std::int64_t>(numbers.size())});
  for (std::size_t k = 0; k < numbers.size(); ++k)
    tensor.data_as<float>()[k] = static_cast<float>(numbers[k]);
  return dtype == f32 ? tensor : cast(tensor, dtype);
}

Tensor row_of(const Ints& numbers) {
  Tensor tensor = Tensor::empty(i64, {static_cast<std::int64_t>(numbers.size())});
  std::copy(numbers.begin(), numbers.end(), tensor.data_as<std::int64_t>());
  return tensor;
}

/// One number, or one for each feature.
std::vector<double> features_of(const Node& node, const Tensor& x, const char* name,
                                double otherwise) {
  std::vector<double> numbers = node.numbers(name);
  if (numbers.empty()) numbers.push_back(otherwise);
  const SymInt& count = x.size(x.rank() - 1);
  if (numbers.size() != 1 && !count.is_symbolic() &&
      count.value() != static_cast<std::int64_t>(numbers.size()))
    node.malformed(name, "one number, or " + listed({count}), std::to_string(numbers.size()));
  return numbers;
}

Outputs scaler(const Node& node) {
  const Tensor x = as_f32(node.tensor(0));
  return {(x - row_of(features_of(node, x, "offset", 0))) *
          row_of(features_of(node, x, "scale", 1))};
}

Outputs binarizer(const Node& node) {
  const Tensor x = node.tensor(0);
  return {cast(greater(x, node.number("threshold", 0)), x.dtype())};
}

Outputs imputer(const Node& node) {
  const Tensor x = node.tensor(0);
  if (!is_floating(x.dtype())) {
    const Ints values = node.integers("imputed_value_int64s");
    if (values.empty()) node.malformed("imputed_value_int64s", "numbers", "none");
    const Tensor row = cast(row_of(values), x.dtype());
    return {where(equal(x, node.integer("replaced_value_int64", 0)), row, x)};
  }
  if (!node.has_attr("imputed_value_floats"))
    node.malformed("imputed_value_floats", "numbers", "none");
  const Tensor row = row_of(features_of(node, x, "imputed_value_floats", 0), x.dtype());
  const double replaced = node.number("replaced_value_float", 0);
  return {where(std::isnan(replaced) ? is_nan(x) : equal(x, replaced), row, x)};
}

Outputs normalizer(const Node& node) {
  const Tensor x = as_f32(node.tensor(0));
  const std::string norm = node.string("norm", "MAX");
  const std::int64_t last = x.rank() - 1;
  Tensor size;
  if (norm == "MAX")
    size = amax(x, {last}, true);
  else if (norm == "L1")
    size = sum(abs(x), {last}, true);
  else if (norm == "L2")
    size = sqrt(sum(x * x, {last}, true));
  else
    node.malformed("norm", "MAX, L1 or L2", norm);
  return {x / where(equal(size, 0.0), 1.0, size)};
}

Outputs array_feature_extractor(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor picked = gather(x, reshape(node.tensor(1), {-1}), x.rank() - 1);
  return {x.rank() == 1 ? unsqueeze(picked, 0) : picked};
}

Outputs feature_vectorizer(const Node& node) {
  std::vector<Tensor> parts;
  const Ints sizes = node.integers("inputdimensions");
  for (const Tensor& part : node.tensors()) {
    const Tensor real = as_f32(part);
    const Tensor rows = real.rank() == 1 ? unsqueeze(real, 1) : reshape(real, {real.size(0), -1});
    const std::size_t k = parts.size();
    parts.push_back(k < sizes.size() ? slice(rows, 1, 0, sizes[k]) : rows);
  }
  return {concat(parts, 1)};
}

Outputs one_hot_encoder(const Node& node) {
  const Ints categories = node.integers("cats_int64s");
  if (categories.empty()) node.unsupported("categories that are strings");
  if (node.integer("zeros", 1) == 0) node.unsupported("zeros = 0: an error for other categories");
  const Tensor x = node.tensor(0);
  return {cast(equal(unsqueeze(cast(x, i64), x.rank()), row_of(categories)), f32)};
}

/// x [n, features] times coefficients [targets, features], plus intercepts.
Tensor linear_scores(const Node& node, const Tensor& x, std::int64_t targets) {
  const std::vector<double> coefficients = node.numbers("coefficients");
  const auto count = static_cast<std::int64_t>(coefficients.size());
  if (targets < 1 || count % targets != 0)
    node.malformed("coefficients",
                   "a number for each feature of " + std::to_string(targets) + " targets",
                   std::to_string(count));
  const Tensor weights = reshape(row_of(coefficients), {targets, count / targets});
  const Tensor product = matmul(x, transpose(weights, 0, 1));
  const std::vector<double> intercepts = node.numbers("intercepts");
  if (intercepts.empty()) return product;
  if (static_cast<std::int64_t>(intercepts.size()) != targets)
    node.malformed("intercepts", std::to_string(targets) + " numbers",
                   std::to_string(intercepts.size()));
  return product + row_of(intercepts);
}

Outputs linear_regressor(const Node& node) {
  const Tensor scores = linear_scores(node, rows_of(node), node.integer("targets", 1));
  return {transformed(node, scores, node.string("post_transform", "NONE"))};
}

Outputs linear_classifier(const Node& node) {
  const Labels labels(node, "classlabels_ints", "classlabels_strings");
  const std::string post_transform = node.string("post_transform", "NONE");
  const auto intercepts = static_cast<std::int64_t>(node.numbers("intercepts").size());
  const std::int64_t targets = intercepts == 0 ? labels.count : intercepts;
  const Tensor scores = linear_scores(node, rows_of(node), targets);
  if (targets == 1 && labels.count == 2)
    return two_classes(labels, scores, 0, post_transform != "LOGISTIC", post_transform);
  if (targets != labels.count)
    node.malformed("intercepts", "one for each label", std::to_string(targets));
  return {labels.of(argmax(scores, 1)), transformed(node, scores, post_transform)};
}

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

/// The attribute of one of these types, for keys or for values.
std::string typed(const Node& node, const std::string& side) {
  for (const char* type : {"int64s", "floats", "strings", "tensor"})
    if (node.has_attr(side + "_" + type)) return side + "_" + type;
  node.malformed(side, "keys and values", "none");
}

Tensor numbers_of(const Node& node, const std::string& name) {
  if (name.ends_with("strings")) node.unsupported(name);
  if (name.ends_with("floats")) return row_of(node.numbers(name));
  if (name.ends_with("tensor")) return reshape(*node.tensor_attr(name), {-1});
  return row_of(node.integers(name));
}

Outputs label_encoder(const Node& node) {
  const Tensor keys = numbers_of(node, typed(node, "keys"));
  const Tensor values = numbers_of(node, typed(node, "values"));
  const Tensor x = node.tensor(0);
  Tensor is_key = equal(unsqueeze(x, x.rank()), keys);
  constexpr std::int64_t kNanIsKey = 4;
  if (is_floating(keys.dtype()) && node.opset() >= kNanIsKey)
    is_key = logical_or(is_key, logical_and(is_nan(unsqueeze(x, x.rank())), is_nan(keys)));
  const Tensor found = gather(values, argmax(cast(is_key, i32), x.rank()));
  const auto otherwise = node.tensor_attr("default_tensor");
  const Tensor none = otherwise ? reshape(*otherwise, {})
                      : values.dtype() == i64
                          ? Tensor::scalar_int(i64, node.integer("default_int64", -1))
                          : Tensor::scalar(values.dtype(), node.number("default_float", -0.0));
  return {where(any(is_key, {x.rank()}), found, none)};
}

}  // namespace

std::span<const Converter> classical_converters() {
  static constexpr Converter kConverters[] = {
      {"ArrayFeatureExtractor", array_feature_extractor},
      {"Binarizer", binarizer},
      {"FeatureVectorizer", feature_vectorizer},
      {"Imputer", imputer},
      {"LabelEncoder", label_encoder},
      {"LinearClassifier", linear_classifier},
      {"LinearRegressor", linear_regressor},
      {"Normalizer", normalizer},
      {"OneHotEncoder", one_hot_encoder},
      {"SVMRegressor", svm_regressor},
      {"Scaler", scaler},
  };
  return kConverters;
}

}  // namespace heddle::onnx
