// Ensembles of decision trees of ai.onnx.ml.

#include <set>

#include "engine/onnx/converters.h"
#include "engine/onnx/scores.h"
#include "engine/onnx/tree_ensemble.h"

namespace heddle::onnx {

namespace {

Aggregate aggregate_called(const Node& node, const std::string& name) {
  if (name == "SUM") return Aggregate::Sum;
  if (name == "AVERAGE") return Aggregate::Average;
  if (name == "MIN") return Aggregate::Min;
  if (name == "MAX") return Aggregate::Max;
  node.malformed("aggregate_function", "SUM, AVERAGE, MIN or MAX", name);
}

/// Results of f64 features are f32 as well, as ONNX says.
Outputs tree_regressor(const Node& node) {
  Ensemble ensemble = ensemble_by_numbers(node, "target");
  ensemble.targets = node.integer("n_targets", 1);
  ensemble.aggregate = aggregate_called(node, node.string("aggregate_function", "SUM"));
  const Tensor x = rows_of(node, true);
  const Tensor scores = scores_of(node, ensemble, x);
  return {as_f32(transformed(node, scores, node.string("post_transform", "NONE")))};
}

bool all_positive(const Ensemble& ensemble) {
  for (const LeafWeights& leaf : ensemble.leaves)
    for (const auto& [target, weight] : leaf)
      if (weight < 0) return false;
  return true;
}

/// Of two classes whose trees speak of one alone: whichever that is, one score is left.
bool take_one_target(Ensemble& ensemble) {
  std::set<std::int64_t> targets;
  for (const LeafWeights& leaf : ensemble.leaves)
    for (const auto& [target, weight] : leaf) targets.insert(target);
  if (ensemble.targets != 2 || targets.size() != 1) return false;
  for (LeafWeights& leaf : ensemble.leaves)
    if (!leaf.empty()) leaf = {{0, leaf.begin()->second}};
  if (!ensemble.base.empty()) ensemble.base = {ensemble.base.back()};
  ensemble.targets = 1;
  return true;
}

Outputs tree_classifier(const Node& node) {
  Ensemble ensemble = ensemble_by_numbers(node, "class");
  const Labels labels(node, "classlabels_int64s", "classlabels_strings");
  ensemble.targets = labels.count;
  const std::string post_transform = node.string("post_transform", "NONE");
  const bool is_one = take_one_target(ensemble);
  const Tensor scores = as_f32(scores_of(node, ensemble, rows_of(node, true)));
  // ONNX Runtime gives 1 in place of the second of two labels here, and looks at its score alone.
  if (!is_one) return {labels.of(argmax(scores, 1)), transformed(node, scores, post_transform)};
  // The second class's score. Of weights that are probabilities it is one, too.
  const bool are_probabilities = all_positive(ensemble);
  return two_classes(labels, scores, are_probabilities ? 0.5 : 0.0, are_probabilities,
                     post_transform);
}

Outputs tree_ensemble(const Node& node) {
  static const char* const kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO",
                                            "PROBIT"};
  constexpr Aggregate kAggregates[] = {Aggregate::Average, Aggregate::Sum, Aggregate::Min,
                                       Aggregate::Max};
  Ensemble ensemble = ensemble_by_places(node);
  ensemble.targets = node.integer("n_targets", 1);
  const std::int64_t how = node.integer("aggregate_function", 1);
  const std::int64_t transform = node.integer("post_transform", 0);
  if (how < 0 || how > 3) node.malformed("aggregate_function", "0 to 3", std::to_string(how));
  if (transform < 0 || transform > 4)
    node.malformed("post_transform", "0 to 4", std::to_string(transform));
  ensemble.aggregate = kAggregates[how];
  const Tensor given = node.tensor(0);
  const Tensor x = rows_of(node, true);
  const Tensor scores = transformed(node, scores_of(node, ensemble, x), kTransforms[transform]);
  return {cast(scores, given.dtype())};
}

}  // namespace

std::span<const Converter> tree_converters() {
  static constexpr Converter kConverters[] = {
      {"TreeEnsemble", tree_ensemble},
      {"TreeEnsembleClassifier", tree_classifier},
      {"TreeEnsembleRegressor", tree_regressor},
  };
  return kConverters;
}

}  // namespace heddle::onnx
