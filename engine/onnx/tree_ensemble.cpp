#include "engine/onnx/tree_ensemble.h"

#include <set>

namespace heddle::onnx {

namespace {

using Test = TreeNode::Test;

/// Numbers of an attribute of floats, or in newer versions of a tensor.
std::vector<double> reals_of(const Node& node, const std::string& name) {
  if (const auto tensor = node.tensor_attr(name + "_as_tensor")) return tensor->to_doubles();
  return node.numbers(name);
}

void check_length(const Node& node, const char* name, std::size_t got, std::size_t wanted) {
  if (got != wanted)
    node.malformed(name, std::to_string(wanted) + " elements", std::to_string(got));
}

Test test_called(const Node& node, const std::string& mode) {
  static const std::map<std::string, Test, std::less<>> kTests = {
      {"BRANCH_LEQ", Test::LessEqual},
      {"BRANCH_LT", Test::Less},
      {"BRANCH_GTE", Test::GreaterEqual},
      {"BRANCH_GT", Test::Greater},
      {"BRANCH_EQ", Test::Equal},
      {"BRANCH_NEQ", Test::NotEqual},
      {"LEAF", Test::Leaf}};
  const auto found = kTests.find(mode);
  if (found == kTests.end()) node.malformed("nodes_modes", "BRANCH_LEQ, …, or LEAF", mode);
  return found->second;
}

/// The attributes of TreeEnsembleClassifier and TreeEnsembleRegressor: nodes are known by the numbers of a tree and in it.
class ByNumbers {
 public:
  /// @param kind  "class" or "target": how attributes of leaves begin
  ByNumbers(const Node& node, const std::string& kind) : node_(node) {
    read_nodes();
    read_leaves(kind);
    ensemble_.base = reals_of(node, "base_values");
  }
  Ensemble take() { return std::move(ensemble_); }

 private:
  using Key = std::pair<std::int64_t, std::int64_t>;

  Ints column(const char* name, std::size_t count) {
    Ints numbers = node_.integers(name);
    check_length(node_, name, numbers.size(), count);
    return numbers;
  }

  void read_nodes() {
    const Ints trees = node_.integers("nodes_treeids");
    const std::size_t count = trees.size();
    const Ints ids = column("nodes_nodeids", count);
    const Ints features = column("nodes_featureids", count);
    const Ints yes = column("nodes_truenodeids", count);
    const Ints no = column("nodes_falsenodeids", count);
    const std::vector<double> thresholds = reals_of(node_, "nodes_values");
    check_length(node_, "nodes_values", thresholds.size(), count);
    const std::vector<std::string> modes = node_.strings("nodes_modes");
    check_length(node_, "nodes_modes", modes.size(), count);
    const Ints nan_is_true = node_.integers("nodes_missing_value_tracks_true");
    for (std::size_t k = 0; k < count; ++k)
      if (!at_.emplace(Key(trees[k], ids[k]), k).second)
        node_.malformed("nodes_nodeids", "different numbers in a tree", std::to_string(ids[k]));
    std::set<std::size_t> below;
    for (std::size_t k = 0; k < count; ++k) {
      TreeNode made{.test = test_called(node_, modes[k])};
      if (made.test == Test::Leaf) {
        made.leaf = ensemble_.leaves.size();
        ensemble_.leaves.emplace_back();
      } else {
        made.feature = features[k];
        made.threshold = thresholds[k];
        made.nan_is_true = k < nan_is_true.size() && nan_is_true[k] != 0;
        made.yes = find({trees[k], yes[k]}, "nodes_truenodeids");
        made.no = find({trees[k], no[k]}, "nodes_falsenodeids");
        below.insert({made.yes, made.no});
      }
      ensemble_.nodes.push_back(made);
    }
    std::set<std::int64_t> seen;
    for (std::size_t k = 0; k < count; ++k)
      if (!below.contains(k) && seen.insert(trees[k]).second) ensemble_.roots.push_back(k);
    if (seen.size() != std::set<std::int64_t>(trees.begin(), trees.end()).size())
      node_.malformed("nodes", "trees", "one without a root");
  }

  std::size_t find(const Key& key, const char* name) const {
    const auto found = at_.find(key);
    if (found == at_.end()) node_.malformed(name, "a node of the tree", std::to_string(key.second));
    return found->second;
  }

  void read_leaves(const std::string& kind) {
    const Ints trees = node_.integers(kind + "_treeids");
    const Ints ids = column((kind + "_nodeids").c_str(), trees.size());
    const Ints targets = column((kind + "_ids").c_str(), trees.size());
    const std::vector<double> weights = reals_of(node_, kind + "_weights");
    check_length(node_, (kind + "_weights").c_str(), weights.size(), trees.size());
    for (std::size_t k = 0; k < trees.size(); ++k) {
      const std::size_t at = find({trees[k], ids[k]}, (kind + "_nodeids").c_str());
      const TreeNode& leaf = ensemble_.nodes[at];
      if (leaf.test != Test::Leaf) continue;  // ONNX Runtime reads weights of leaves alone, too
      if (targets[k] < 0) node_.malformed(kind + "_ids", "0 or more", std::to_string(targets[k]));
      ensemble_.leaves[leaf.leaf][targets[k]] += weights[k];
    }
  }

  const Node& node_;
  std::map<Key, std::size_t> at_;
  Ensemble ensemble_;
};

/// The attributes of TreeEnsemble: nodes and leaves are known by their places.
class ByPlaces {
 public:
  explicit ByPlaces(const Node& node)
      : node_(node), tests_(node.integers("nodes_featureids").size()) {
    read_members();
    read_nodes();
    const Ints targets = node.integers("leaf_targetids");
    const std::vector<double> weights = tensor("leaf_weights");
    check_length(node, "leaf_weights", weights.size(), targets.size());
    for (std::size_t k = 0; k < targets.size(); ++k)
      ensemble_.leaves.push_back({{targets[k], weights[k]}});
    for (const std::int64_t root : node.integers("tree_roots"))
      ensemble_.roots.push_back(place(root, tests_, "tree_roots"));
  }
  Ensemble take() { return std::move(ensemble_); }

 private:
  std::vector<double> tensor(const char* name) {
    const auto found = node_.tensor_attr(name);
    return found ? found->to_doubles() : std::vector<double>();
  }

  std::size_t place(std::int64_t number, std::size_t count, const char* name) const {
    if (number < 0 || static_cast<std::size_t>(number) >= count)
      node_.malformed(name, "0 to " + std::to_string(count), std::to_string(number));
    return static_cast<std::size_t>(number);
  }

  /// Sets lie behind each other, each ended by a NaN.
  void read_members() {
    std::vector<double> set;
    for (const double member : tensor("membership_values")) {
      if (member == member) {
        set.push_back(member);
      } else {
        sets_.push_back(std::move(set));
        set.clear();
      }
    }
  }

  void read_nodes() {
    constexpr Test kTests[] = {Test::LessEqual, Test::Less,  Test::GreaterEqual,
                               Test::Greater,   Test::Equal, Test::NotEqual};
    constexpr double kMember = 6;
    const Ints features = node_.integers("nodes_featureids");
    const std::vector<double> modes = tensor("nodes_modes");
    const std::vector<double> splits = tensor("nodes_splits");
    check_length(node_, "nodes_modes", modes.size(), tests_);
    check_length(node_, "nodes_splits", splits.size(), tests_);
    const Ints nan_is_true = node_.integers("nodes_missing_value_tracks_true");
    ensemble_.nodes.resize(tests_);
    leaf_nodes_.assign(node_.integers("leaf_targetids").size(), kNoNode);
    const Children yes = children("nodes_trueleafs", "nodes_truenodeids");
    const Children no = children("nodes_falseleafs", "nodes_falsenodeids");
    std::size_t set = 0;
    for (std::size_t k = 0; k < tests_; ++k) {
      TreeNode made{.feature = features[k], .threshold = splits[k]};
      made.nan_is_true = k < nan_is_true.size() && nan_is_true[k] != 0;
      made.yes = child(yes, k);
      made.no = child(no, k);
      if (modes[k] == kMember) {
        if (set == sets_.size())
          node_.malformed("membership_values", "a set for each BRANCH_MEMBER",
                          std::to_string(sets_.size()));
        add_members(made, k, sets_[set++]);
        continue;
      }
      if (!(modes[k] >= 0 && modes[k] < kMember))
        node_.malformed("nodes_modes", "0 to 6", std::to_string(modes[k]));
      made.test = kTests[static_cast<std::size_t>(modes[k])];
      ensemble_.nodes[k] = made;
    }
  }

  /// One member after the other.
  void add_members(const TreeNode& like, std::size_t k, const std::vector<double>& members) {
    TreeNode made = like;
    made.test = Test::Equal;
    for (std::size_t n = 0; n < members.size(); ++n) {
      made.threshold = members[n];
      const bool is_last = n + 1 == members.size();
      made.no = is_last ? like.no : ensemble_.nodes.size() + (n == 0 ? 0 : 1);
      if (n == 0)
        ensemble_.nodes[k] = made;
      else
        ensemble_.nodes.push_back(made);
    }
    if (members.empty()) node_.malformed("membership_values", "sets with members", "an empty one");
  }

  /// What is below each test on one side: numbers of leaves, or of tests.
  struct Children {
    const char* name;
    Ints are_leaves, numbers;
  };
  Children children(const char* are_leaves, const char* name) const {
    Children made{name, node_.integers(are_leaves), node_.integers(name)};
    check_length(node_, are_leaves, made.are_leaves.size(), tests_);
    check_length(node_, name, made.numbers.size(), tests_);
    return made;
  }

  /// The node below test `k`.
  std::size_t child(const Children& below, std::size_t k) {
    if (below.are_leaves[k] == 0) return place(below.numbers[k], tests_, below.name);
    const std::size_t leaf = place(below.numbers[k], leaf_nodes_.size(), below.name);
    if (leaf_nodes_[leaf] == kNoNode) {
      leaf_nodes_[leaf] = ensemble_.nodes.size();
      ensemble_.nodes.push_back({.leaf = leaf});
    }
    return leaf_nodes_[leaf];
  }

  static constexpr std::size_t kNoNode = static_cast<std::size_t>(-1);
  const Node& node_;
  std::size_t tests_;
  std::vector<std::vector<double>> sets_;
  std::vector<std::size_t> leaf_nodes_;
  Ensemble ensemble_;
};

}  // namespace

Ensemble ensemble_by_numbers(const Node& node, const std::string& kind) {
  return ByNumbers(node, kind).take();
}

Ensemble ensemble_by_places(const Node& node) { return ByPlaces(node).take(); }

}  // namespace heddle::onnx
