// Models of ai.onnx.ml but trees, and what prepares features for them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/onnx/converters.h"
#include "engine/onnx/reader.h"
#include "engine/onnx/scores.h"

namespace heddle::onnx {

namespace {

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
  const bool is_text = node.value(0).is_text();
  const Ints numbers = node.integers("cats_int64s");
  const std::vector<std::string> strings = node.strings("cats_strings");
  if (is_text ? strings.empty() : numbers.empty())
    node.malformed(is_text ? "cats_strings" : "cats_int64s", "categories", "none");
  if (node.integer("zeros", 1) == 0) node.unsupported("zeros = 0: an error for other categories");
  const Tensor categories = is_text ? node.codes_of(strings) : row_of(numbers);
  const Tensor x = node.tensor(0);
  return {cast(equal(unsqueeze(cast(x, i64), x.rank()), categories), f32)};
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

/// The attribute of one of these types, for keys or for values.
std::string typed(const Node& node, const std::string& side) {
  for (const char* type : {"int64s", "floats", "strings", "tensor"})
    if (node.has_attr(side + "_" + type)) return side + "_" + type;
  node.malformed(side, "keys and values", "none");
}

Tensor in_one_dimension(const Node& node, const Value& value) {
  const auto constant = value.concrete();
  if (!constant) node.unsupported("keys or values of less than a byte");
  Tensor same = Tensor::empty(constant->dtype(), Sizes{constant->count()});
  if (same.count() != 0)
    std::memcpy(same.data(), constant->data(),
                static_cast<std::size_t>(same.count()) * size_of(same.dtype()));
  return same;
}

/// Numbers, or the codes of strings.
Tensor numbers_of(const Node& node, const std::string& name) {
  if (name.ends_with("strings")) return node.codes_of(node.strings(name));
  if (name.ends_with("floats")) return row_of(node.numbers(name));
  if (name.ends_with("tensor")) return in_one_dimension(node, node.constant_attr(name));
  return row_of(node.integers(name));
}

/// Whether what numbers_of() gives are codes.
bool are_strings(const Node& node, const std::string& name) {
  return name.ends_with("strings") ||
         (name.ends_with("tensor") && node.constant_attr(name).is_text());
}

/// What a label encoder gives for other keys.
Tensor other_label(const Node& node, DType dtype, bool is_text) {
  if (const Value given = node.constant_attr("default_tensor"); given.defined()) {
    const Tensor one = in_one_dimension(node, given);
    if (given.is_text() != is_text || one.dtype() != dtype || one.count() != 1)
      node.malformed("default_tensor", "one element of the type of the values",
                     std::to_string(one.count()) + (given.is_text() ? " of strings" : " of ") +
                         (given.is_text() ? "" : std::string(name_of(one.dtype()))));
    return reshape(one, {});
  }
  if (is_text) {
    const std::string text = node.string("default_string", kUnusedLabel);
    return reshape(node.codes_of({&text, 1}), {});
  }
  if (dtype == i64) return Tensor::scalar_int(i64, node.integer("default_int64", -1));
  return Tensor::scalar(dtype, node.number("default_float", -0.0));
}

/// Of keys that are numbers. Of equal keys the first counts.
Tensor values_of_numbers(const Tensor& keys, const Tensor& values, const Tensor& otherwise,
                         const Tensor& x, bool nan_is_key) {
  Tensor is_key = equal(unsqueeze(x, x.rank()), keys);
  if (is_floating(keys.dtype()) && nan_is_key)
    is_key = logical_or(is_key, logical_and(is_nan(unsqueeze(x, x.rank())), is_nan(keys)));
  const Tensor found = gather(values, argmax(cast(is_key, i32), x.rank()));
  return where(any(is_key, {x.rank()}), found, otherwise);
}

/// Of keys that are strings: codes count from 0, so that a table has the place of each one's value. Of equal keys the first counts.
Tensor values_of_text(const Node& node, const Tensor& keys, const Tensor& values,
                      const Tensor& otherwise, const Tensor& x) {
  constexpr std::int64_t kSmallTable = std::int64_t{1} << 16;
  const auto known = static_cast<std::int64_t>(node.source().strings->size());
  const std::int64_t none = values.count();
  if (known > std::max(kSmallTable, 16 * none))
    return values_of_numbers(keys, values, otherwise, x, false);
  Tensor places = Tensor::empty(i64, {known + 1});
  auto* place = places.data_as<std::int64_t>();
  std::fill_n(place, known + 1, none);
  for (std::int64_t k = keys.count(); k-- > 0;) place[keys.data_as<std::int64_t>()[k]] = k;
  const Tensor is_known = logical_and(greater_equal(x, 0), less(x, known));
  const Tensor at = where(is_known, x, Tensor::scalar_int(i64, known));
  return gather(concat({values, reshape(otherwise, {1})}, 0), gather(places, at));
}

/// Version 1: strings to their places in a list, or places to strings.
Outputs label_places(const Node& node) {
  std::vector<std::string> strings = node.strings("classes_strings");
  const auto count = static_cast<std::int64_t>(strings.size());
  const Tensor x = node.tensor(0);
  if (node.value(0).is_text()) {
    // Of equal strings the last one's place counts, as in ONNX Runtime.
    Ints places(strings.size());
    std::iota(places.rbegin(), places.rend(), 0);
    std::ranges::reverse(strings);
    return {values_of_text(node, node.codes_of(strings), row_of(places),
                           other_label(node, i64, false), x)};
  }
  const Tensor classes = node.codes_of(strings);
  const Tensor is_place = logical_and(greater_equal(x, 0), less(x, count));
  const Tensor at = where(is_place, x, Tensor::scalar_int(x.dtype(), count));
  const Tensor none = reshape(other_label(node, i64, true), {1});
  return {Value(gather(concat({classes, none}, 0), at)).as_text()};
}

Outputs label_encoder(const Node& node) {
  if (node.has_attr("classes_strings")) return label_places(node);
  const std::string keys_name = typed(node, "keys");
  const std::string values_name = typed(node, "values");
  const Tensor keys = numbers_of(node, keys_name);
  const Tensor values = numbers_of(node, values_name);
  if (keys.count() != values.count() || keys.count() == 0)
    node.malformed("values", std::to_string(keys.count()) + ", one for each key",
                   std::to_string(values.count()));
  const bool from_text = are_strings(node, keys_name);
  const bool to_text = are_strings(node, values_name);
  if (node.value(0).is_text() != from_text)
    node.malformed("keys", from_text ? "numbers, as the input has" : "strings, as the input has",
                   from_text ? "strings" : "numbers");
  const Tensor none = other_label(node, values.dtype(), to_text);
  const Tensor x = node.tensor(0);
  if (from_text) {
    const Value found = values_of_text(node, keys, values, none, x);
    return {to_text ? found.as_text() : found};
  }
  // ONNX Runtime finds NaN from version 4 on.
  constexpr std::int64_t kNanIsKey = 4;
  const Value found = values_of_numbers(keys, values, none, x, node.opset() >= kNanIsKey);
  return {to_text ? found.as_text() : found};
}

/// Strings to numbers or numbers to strings, pair by pair.
Outputs category_mapper(const Node& node) {
  std::vector<std::string> strings = node.strings("cats_strings");
  Ints numbers = node.integers("cats_int64s");
  if (strings.empty() || strings.size() != numbers.size())
    node.malformed("cats_int64s", std::to_string(strings.size()) + ", one for each string",
                   std::to_string(numbers.size()));
  // Of equal ones the last counts, as in ONNX Runtime.
  std::ranges::reverse(strings);
  std::ranges::reverse(numbers);
  const Tensor codes = node.codes_of(strings);
  const Tensor x = node.tensor(0);
  if (node.value(0).is_text())
    return {values_of_text(node, codes, row_of(numbers), other_label(node, i64, false), x)};
  const Tensor none = other_label(node, i64, true);
  return {Value(values_of_numbers(row_of(numbers), codes, none, x, false)).as_text()};
}

Outputs zip_map(const Node& node) {
  const std::size_t strings = node.strings("classlabels_strings").size();
  const std::size_t numbers = node.integers("classlabels_int64s").size();
  const Tensor x = node.tensor(0);
  if (x.dtype() != f32 || x.rank() < 1 || x.rank() > 2)
    node.malformed("X", "f32 of one or two dimensions",
                   std::string(name_of(x.dtype())) + " of " + std::to_string(x.rank()));
  const Tensor rows = x.rank() == 1 ? unsqueeze(x, 0) : x;
  const auto keys = static_cast<std::int64_t>(strings + numbers);
  if ((strings == 0) == (numbers == 0) || rows.size(1) != keys)
    node.malformed("classlabels", "a number or a string for each column, " + listed({rows.size(1)}),
                   std::to_string(keys));
  return {Value::of_maps(rows)};
}

}  // namespace

std::span<const Converter> classical_converters() {
  static constexpr Converter kConverters[] = {
      {"ArrayFeatureExtractor", array_feature_extractor, {}, false, Texts::Moves},
      {"Binarizer", binarizer},
      {"CategoryMapper", category_mapper, {}, false, Texts::Reads},
      {"FeatureVectorizer", feature_vectorizer},
      {"Imputer", imputer},
      {"LabelEncoder", label_encoder, {}, false, Texts::Reads},
      {"LinearClassifier", linear_classifier},
      {"LinearRegressor", linear_regressor},
      {"Normalizer", normalizer},
      {"OneHotEncoder", one_hot_encoder, {}, false, Texts::Reads},
      {"Scaler", scaler},
      {"ZipMap", zip_map},
  };
  return kConverters;
}

}  // namespace heddle::onnx
