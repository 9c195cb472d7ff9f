// Decision trees as tables that a kernel walks through, all trees at once and one level after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// A node of a tree: what it asks of a feature, and where a row goes on. A leaf asks nothing.
struct TreeNode {
  enum class Test : std::uint8_t { LessEqual, Less, GreaterEqual, Greater, Equal, NotEqual, Leaf };
  Test test = Test::Leaf;
  std::int64_t feature = 0;
  double threshold = 0;
  bool nan_is_true = false;  ///< NaN goes where the test holds; else where comparing it leads
  std::size_t yes = 0;       ///< nodes
  std::size_t no = 0;
  std::size_t leaf = 0;  ///< a leaf's number
};

/// Some trees. In each slot there is a split: a row goes to the slot `next` and, where feature > threshold, to the one behind it.
/// The slots of leaves lead to themselves.
struct TreeTables {
  std::vector<std::int64_t> roots;  ///< slots, one for each tree
  std::vector<std::int64_t> next;
  std::vector<std::int64_t> feature;
  std::vector<double> threshold;
  std::vector<bool> nan_goes_on;  ///< NaN goes to the slot behind `next`
  std::vector<std::size_t> leaf;  ///< of the slots of leaves their numbers, which the walk ends at
  std::int64_t depth = 0;         ///< steps from a root to a leaf, at most
};

/// right where feature > threshold, else left.
struct TreeSplit {
  std::int64_t feature = 0;
  double threshold = std::numeric_limits<double>::infinity();
  bool nan_right = false;
  bool is_leaf = true;
  std::size_t left = 0;
  std::size_t right = 0;
  std::size_t leaf = 0;
};

/// Nodes whose tests are splits.
class Forest {
 public:
  /// @param wide  whether features are f64; else f32, as thresholds then are
  Forest(const Node& node, const std::vector<TreeNode>& nodes, bool wide);

  /// Steps from a root to a leaf, at most. @throws ModelError where the nodes below are no tree, UnsupportedError for 500 and more.
  std::int64_t depth_below(std::size_t root) const;
  /// @param roots  nodes, of trees whose depth was asked for
  TreeTables tables_of(const std::vector<std::size_t>& roots) const;

 private:
  void add(const TreeNode& node, std::size_t k);
  void add_equal(const TreeNode& node, double below, std::size_t k, std::size_t equal,
                 std::size_t other, bool nan_is_equal);

  const Node& node_;
  bool wide_;
  std::vector<TreeSplit>
      splits_;  ///< split k is that of node k; what is needed besides lies behind
};

/// The slots of leaves that rows of x [n, features] end at: i32[n, trees].
/// @param x  f32 or f64
Tensor walked(const TreeTables& tables, const Tensor& x);

}  // namespace heddle::onnx
