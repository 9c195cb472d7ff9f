#include "engine/onnx/trees.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

namespace heddle::onnx {

namespace {

using Test = TreeNode::Test;
constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Puts splits into slots, the two below one side by side.
class Layout {
 public:
  explicit Layout(const std::vector<TreeSplit>& splits)
      : splits_(splits), pair_(splits.size(), kNone) {}

  TreeTables of(const std::vector<std::size_t>& roots) {
    std::vector<std::size_t> level;
    for (const std::size_t root : roots) {
      tables_.roots.push_back(static_cast<std::int64_t>(place(root)));
      level.push_back(root);
    }
    for (; !level.empty(); ++tables_.depth) level = below(level);
    --tables_.depth;
    for (std::size_t slot = 0; slot < in_slot_.size(); ++slot) describe(slot);
    return std::move(tables_);
  }

 private:
  std::size_t place(std::size_t split) {
    in_slot_.push_back(split);
    return in_slot_.size() - 1;
  }

  /// The splits one step below; gives theirs to those that have no slots yet.
  std::vector<std::size_t> below(const std::vector<std::size_t>& level) {
    std::vector<std::size_t> next;
    for (const std::size_t k : level) {
      const TreeSplit& split = splits_[k];
      if (split.is_leaf) continue;
      if (pair_[k] == kNone) {
        pair_[k] = place(split.left);
        place(split.right);
      }
      next.push_back(split.left);
      next.push_back(split.right);
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    return next;
  }

  void describe(std::size_t slot) {
    const std::size_t k = in_slot_[slot];
    const TreeSplit& split = splits_[k];
    tables_.next.push_back(static_cast<std::int64_t>(split.is_leaf ? slot : pair_[k]));
    tables_.feature.push_back(split.feature);
    tables_.threshold.push_back(split.threshold);
    tables_.nan_goes_on.push_back(split.nan_right);
    tables_.leaf.push_back(split.is_leaf ? split.leaf : kNone);
  }

  const std::vector<TreeSplit>& splits_;
  std::vector<std::size_t> pair_;     ///< slot of what is left below a split
  std::vector<std::size_t> in_slot_;  ///< splits
  TreeTables tables_;
};

template <typename T, typename Numbers>
Tensor vector_of(const Numbers& numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  Tensor tensor = Tensor::empty(dtype_of<T>(), {count});
  std::transform(numbers.begin(), numbers.end(), tensor.data_as<T>(),
                 [](auto number) { return static_cast<T>(number); });
  return tensor;
}

/// Where all inner slots send NaN: on, or not; nothing where they differ, or a threshold would keep an infinity back.
std::optional<bool> nan_goes_on(const TreeTables& tables) {
  std::optional<bool> all;
  for (std::size_t slot = 0; slot < tables.next.size(); ++slot) {
    if (tables.leaf[slot] != kNone) continue;
    if (all.value_or(tables.nan_goes_on[slot]) != tables.nan_goes_on[slot] ||
        !std::isfinite(tables.threshold[slot]))
      return {};
    all = tables.nan_goes_on[slot];
  }
  return all.value_or(false);
}

}  // namespace

Forest::Forest(const Node& node, const std::vector<TreeNode>& nodes, bool wide)
    : node_(node), wide_(wide), splits_(nodes.size()) {
  for (std::size_t k = 0; k < nodes.size(); ++k) add(nodes[k], k);
}

void Forest::add(const TreeNode& node, std::size_t k) {
  const double below = wide_ ? std::nextafter(node.threshold, -kInfinity)
                             : std::nextafter(static_cast<float>(node.threshold),
                                              -std::numeric_limits<float>::infinity());
  const bool is_least = node.threshold == -kInfinity;  // nothing is below
  switch (node.test) {
    case Test::Leaf:
      splits_[k].leaf = node.leaf;
      return;
    case Test::LessEqual:
      splits_[k] = {node.feature, node.threshold, !node.nan_is_true, false, node.yes, node.no};
      return;
    case Test::Less:
      if (is_least)
        splits_[k] = {node.feature, kInfinity, node.nan_is_true, false, node.no, node.yes};
      else
        splits_[k] = {node.feature, below, !node.nan_is_true, false, node.yes, node.no};
      return;
    case Test::Greater:
      splits_[k] = {node.feature, node.threshold, node.nan_is_true, false, node.no, node.yes};
      return;
    case Test::GreaterEqual:
      if (is_least)
        splits_[k] = {node.feature, kInfinity, !node.nan_is_true, false, node.yes, node.no};
      else
        splits_[k] = {node.feature, below, node.nan_is_true, false, node.no, node.yes};
      return;
    case Test::Equal:
      return add_equal(node, below, k, node.yes, node.no, node.nan_is_true);
    case Test::NotEqual:  // NaN differs from every number
      return add_equal(node, below, k, node.no, node.yes, false);
  }
}

/// Not above the threshold, and above the number before it.
void Forest::add_equal(const TreeNode& node, double below, std::size_t k, std::size_t equal,
                       std::size_t other, bool nan_is_equal) {
  const std::size_t second = splits_.size();
  splits_[k] = {node.feature, node.threshold, !nan_is_equal, false, second, other};
  if (node.threshold == -kInfinity)
    splits_.push_back({node.feature, kInfinity, nan_is_equal, false, equal, equal});
  else
    splits_.push_back({node.feature, below, nan_is_equal, false, other, equal});
}

std::int64_t Forest::depth_below(std::size_t root) const {
  constexpr std::int64_t kMostSteps = 500;  // each is code of its own
  // Of a split that was left its depth; of one that is on the way there none yet.
  std::unordered_map<std::size_t, std::optional<std::int64_t>> depths;
  std::vector<std::size_t> way{root};
  while (!way.empty()) {
    const std::size_t k = way.back();
    const TreeSplit& split = splits_[k];
    const bool is_new = depths.try_emplace(k).second;
    std::int64_t depth = 0;
    bool waits = false;
    for (const std::size_t below : {split.left, split.right}) {
      if (split.is_leaf) break;
      const auto found = depths.find(below);
      if (found == depths.end()) {
        way.push_back(below);
        waits = true;
      } else if (found->second) {
        depth = std::max(depth, *found->second + 1);
      } else if (is_new) {
        node_.malformed("nodes", "trees", "a node below itself");
      }
    }
    if (waits) continue;
    depths[k] = depth;
    way.pop_back();
  }
  const std::int64_t depth = *depths.at(root);
  if (depth >= kMostSteps) node_.unsupported("trees of " + std::to_string(depth) + " levels");
  return depth;
}

TreeTables Forest::tables_of(const std::vector<std::size_t>& roots) const {
  return Layout(splits_).of(roots);
}

namespace {

/// Where rows go on and what they are asked there: in one table where both fit 32 bits, as each table costs a gather a step.
class Steps {
 public:
  explicit Steps(const TreeTables& tables) {
    const std::int64_t most_feature =
        *std::max_element(tables.feature.begin(), tables.feature.end());
    const std::int64_t most_next = *std::max_element(tables.next.begin(), tables.next.end());
    while (most_feature >> bits_ != 0) ++bits_;
    packed_ = most_next <= std::numeric_limits<std::int32_t>::max() >> bits_;
    if (packed_) {
      std::vector<std::int64_t> both;
      for (std::size_t slot = 0; slot < tables.next.size(); ++slot)
        both.push_back(tables.next[slot] << bits_ | tables.feature[slot]);
      next_ = vector_of<std::int32_t>(both);
    } else {
      next_ = vector_of<std::int32_t>(tables.next);
      feature_ = vector_of<std::int32_t>(tables.feature);
    }
  }

  /// The slots next to these, and their features.
  std::pair<Tensor, Tensor> operator()(const Tensor& slot) const {
    const Tensor next = gather(next_, slot);
    if (!packed_) return {next, gather(feature_, slot)};
    const auto number = [](std::int64_t value) { return Tensor::scalar_int(i32, value); };
    return {one("shr", {next, number(bits_)}),
            one("and", {next, number((std::int64_t{1} << bits_) - 1)})};
  }

 private:
  std::int64_t bits_ = 0;  ///< of a feature
  bool packed_ = false;
  Tensor next_;  ///< packed: above the feature
  Tensor feature_;
};

}  // namespace

Tensor walked(const TreeTables& tables, const Tensor& given) {
  const bool wide = given.dtype() == f64;
  const Steps steps(tables);
  const Tensor threshold =
      wide ? vector_of<double>(tables.threshold) : vector_of<float>(tables.threshold);
  // Infinities go as NaN would, unless some do otherwise.
  const std::optional<bool> on = nan_goes_on(tables);
  const Tensor x = on ? where(is_nan(given), *on ? kInfinity : -kInfinity, given) : given;
  const Tensor nan_on = on ? Tensor() : vector_of<bool>(tables.nan_goes_on);
  const auto trees = static_cast<std::int64_t>(tables.roots.size());
  Tensor slot = expand(vector_of<std::int32_t>(tables.roots), {x.size(0), trees});
  for (std::int64_t step = 0; step < tables.depth; ++step) {
    const auto [next, feature] = steps(slot);
    const Tensor number = one("gather_elements", {x, feature}, {{"axis", std::int64_t{1}}});
    Tensor goes_on = greater(number, gather(threshold, slot));
    if (!on) goes_on = logical_or(goes_on, logical_and(is_nan(number), gather(nan_on, slot)));
    slot = next + cast(goes_on, i32);
  }
  return slot;
}

}  // namespace heddle::onnx
