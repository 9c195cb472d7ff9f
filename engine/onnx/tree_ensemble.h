// Ensembles of decision trees as the attributes of a node of ai.onnx.ml describe them.
#pragma once

#include <map>
#include <vector>

#include "engine/onnx/trees.h"

namespace heddle::onnx {

/// What a leaf adds to scores: a weight for each of some targets.
using LeafWeights = std::map<std::int64_t, double>;

enum class Aggregate : std::uint8_t { Average, Sum, Min, Max };

/// Trees and what their leaves say, whichever way a node's attributes put it.
struct Ensemble {
  std::vector<TreeNode> nodes;
  std::vector<std::size_t> roots;
  std::vector<LeafWeights> leaves;
  std::int64_t targets = 1;
  Aggregate aggregate = Aggregate::Sum;
  std::vector<double> base;  ///< of each target, or empty
};

/// The attributes of TreeEnsembleClassifier and TreeEnsembleRegressor: nodes are known by the numbers of a tree and in it.
/// Targets and how they are put together are left as they are by default.
/// @param kind  "class" or "target": how attributes of leaves begin
/// @throws ModelError
Ensemble ensemble_by_numbers(const Node& node, const std::string& kind);
/// Those of TreeEnsemble: nodes and leaves are known by their places.
Ensemble ensemble_by_places(const Node& node);

/// The scores of all targets, [n, targets], of rows of x [n, features].
Tensor scores_of(const Node& node, const Ensemble& ensemble, const Tensor& x);

}  // namespace heddle::onnx
