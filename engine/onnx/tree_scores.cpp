// What trees say of rows, added up by target.

#include <algorithm>
#include <limits>
#include <set>

#include "engine/onnx/tree_ensemble.h"

namespace heddle::onnx {

namespace {

using Test = TreeNode::Test;
using Roots = std::vector<std::size_t>;

/// Trees that are walked through together.
struct Group {
  Ints targets;  ///< in order
  std::vector<Roots>
      roots;  ///< of each target its own, as many as of the others; or one list, of trees that may have all
};

/// The targets that leaves below a node have.
std::set<std::int64_t> targets_below(const Ensemble& ensemble, std::size_t root) {
  std::set<std::int64_t> targets;
  std::set<std::size_t> seen;
  std::vector<std::size_t> open{root};
  while (!open.empty()) {
    const std::size_t k = open.back();
    open.pop_back();
    if (!seen.insert(k).second) continue;
    const TreeNode& node = ensemble.nodes[k];
    if (node.test == Test::Leaf) {
      for (const auto& [target, weight] : ensemble.leaves[node.leaf]) targets.insert(target);
    } else {
      open.insert(open.end(), {node.yes, node.no});
    }
  }
  return targets;
}

/// A weight for each slot: that of one target where its leaves are, or their only one; elsewhere `otherwise`.
Tensor weights_in_slots(const Ensemble& ensemble, const TreeTables& tables,
                        std::optional<std::int64_t> target, double otherwise, DType dtype) {
  const auto slots = static_cast<std::int64_t>(tables.leaf.size());
  Tensor weights = Tensor::empty(dtype, {slots});
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    double weight = otherwise;
    if (const std::size_t leaf = tables.leaf[static_cast<std::size_t>(slot)];
        leaf < ensemble.leaves.size()) {
      const LeafWeights& all = ensemble.leaves[leaf];
      const auto found = target ? all.find(*target) : all.begin();
      if (found != all.end()) weight = found->second;
    }
    if (dtype == f64)
      weights.data_as<double>()[slot] = weight;
    else
      weights.data_as<float>()[slot] = static_cast<float>(weight);
  }
  return weights;
}

class Scores {
 public:
  Scores(const Node& node, const Ensemble& ensemble, const Tensor& x)
      : node_(node),
        ensemble_(ensemble),
        x_(x),
        forest_(node, ensemble.nodes, x.dtype() == f64),
        columns_(static_cast<std::size_t>(ensemble.targets)) {}

  Tensor all() {
    const std::vector<Group> groups = made_groups();
    is_alone_ = groups.size() == 1;
    for (const Group& group : groups) add(group);
    if (whole_.defined()) return with_base(whole_);
    for (Tensor& column : columns_)
      if (!column.defined()) column = expand(Tensor::scalar(x_.dtype(), 0), {x_.size(0), 1});
    return with_base(columns_.size() == 1 ? columns_[0] : concat(columns_, 1));
  }

 private:
  std::vector<Group> made_groups() const {
    std::map<std::set<std::int64_t>, Roots> by_targets;
    for (const std::size_t root : ensemble_.roots)
      by_targets[targets_below(ensemble_, root)].push_back(root);
    std::vector<Group> groups;
    Group each;  // as boosting makes them: a tree for each class in turn
    for (const auto& [targets, roots] : by_targets) {
      for (const std::int64_t target : targets) check_target(target);
      if (targets.size() == 1 && (each.roots.empty() || each.roots[0].size() == roots.size())) {
        each.targets.push_back(*targets.begin());
        each.roots.push_back(roots);
      } else if (!targets.empty()) {
        groups.push_back({{targets.begin(), targets.end()}, {roots}});
      }
    }
    if (!each.roots.empty()) groups.push_back(std::move(each));
    return groups;
  }

  void check_target(std::int64_t target) const {
    if (target >= ensemble_.targets)
      node_.malformed("target of a leaf", "less than " + std::to_string(ensemble_.targets),
                      std::to_string(target));
  }

  /// Trees of like depths behind each other: of all that are walked through together each takes the steps of the deepest.
  std::vector<Group> by_depth(Group group) const {
    constexpr std::size_t kTrees = 32;  // a few vectors of them
    constexpr std::int64_t kSteps = 2;
    std::map<std::size_t, std::int64_t> depths;
    for (Roots& roots : group.roots) {
      for (const std::size_t root : roots) depths[root] = forest_.depth_below(root);
      std::stable_sort(roots.begin(), roots.end(),
                       [&](std::size_t a, std::size_t b) { return depths.at(a) < depths.at(b); });
    }
    const std::size_t count = group.roots[0].size();
    const auto deepest = [&](std::size_t end) {
      std::int64_t depth = 0;
      for (const Roots& roots : group.roots) depth = std::max(depth, depths.at(roots[end - 1]));
      return depth;
    };
    std::vector<Group> parts;
    for (std::size_t first = 0; first < count;) {
      std::size_t end = std::min(first + kTrees, count);
      while (end < count && deepest(std::min(end + kTrees, count)) < deepest(end) + kSteps)
        end = std::min(end + kTrees, count);
      parts.push_back({group.targets, {}});
      for (const Roots& roots : group.roots)
        parts.back().roots.emplace_back(roots.begin() + static_cast<std::ptrdiff_t>(first),
                                        roots.begin() + static_cast<std::ptrdiff_t>(end));
      first = end;
    }
    return parts;
  }

  void add(const Group& group) {
    for (const Group& part : by_depth(group)) {
      Roots roots;
      for (const Roots& some : part.roots) roots.insert(roots.end(), some.begin(), some.end());
      const TreeTables tables = forest_.tables_of(roots);
      for (const std::int64_t feature : tables.feature) check_feature(feature);
      const Tensor slots = walked(tables, x_);
      if (part.roots.size() == part.targets.size())
        add_own(part, tables, slots);
      else
        for (const std::int64_t target : part.targets)
          join(column(target), joined(gather(weights(tables, target), slots)));
    }
  }

  /// Each tree is of one target.
  void add_own(const Group& part, const TreeTables& tables, const Tensor& slots) {
    const auto targets = static_cast<std::int64_t>(part.targets.size());
    const auto trees = static_cast<std::int64_t>(part.roots[0].size());
    const Tensor said = gather(weights(tables, {}), slots);
    const Tensor each = targets == 1 ? joined(said)
                                     : reshape(joined(reshape(said, {x_.size(0), targets, trees})),
                                               {x_.size(0), targets});
    if (is_alone_ && targets == ensemble_.targets) return join(whole_, each);
    for (std::int64_t k = 0; k < targets; ++k)
      join(column(part.targets[static_cast<std::size_t>(k)]), slice(each, 1, k, k + 1));
  }

  Tensor& column(std::int64_t target) { return columns_[static_cast<std::size_t>(target)]; }

  void check_feature(std::int64_t feature) const {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const SymInt& count = x_.size(1);
    if (feature < 0 || feature > kMost || (!count.is_symbolic() && feature >= count.value()))
      node_.malformed("nodes_featureids", "one of " + listed({count}) + " features, below 2^31",
                      std::to_string(feature));
  }

  Tensor weights(const TreeTables& tables, std::optional<std::int64_t> target) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const Aggregate how = ensemble_.aggregate;
    const double none = how == Aggregate::Min ? kInfinity : how == Aggregate::Max ? -kInfinity : 0;
    return weights_in_slots(ensemble_, tables, target, none, x_.dtype());
  }

  /// What trees, along the last dimension, say together: that dimension becomes 1.
  Tensor joined(const Tensor& said) const {
    switch (ensemble_.aggregate) {
      case Aggregate::Min:
        return amin(said, {-1}, true);
      case Aggregate::Max:
        return amax(said, {-1}, true);
      case Aggregate::Average:
        return sum(said, {-1}, true) * (1.0 / static_cast<double>(ensemble_.roots.size()));
      case Aggregate::Sum:
        break;
    }
    return sum(said, {-1}, true);
  }

  void join(Tensor& all, const Tensor& part) const {
    if (!all.defined())
      all = part;
    else if (ensemble_.aggregate == Aggregate::Min)
      all = minimum(all, part);
    else
      all = ensemble_.aggregate == Aggregate::Max ? maximum(all, part) : all + part;
  }

  Tensor with_base(const Tensor& scores) const {
    const std::vector<double>& base = ensemble_.base;
    if (base.empty()) return scores;
    if (base.size() == 1) return scores + base[0];
    if (static_cast<std::int64_t>(base.size()) != ensemble_.targets)
      node_.malformed("base_values", std::to_string(ensemble_.targets) + " numbers",
                      std::to_string(base.size()));
    Tensor row = Tensor::empty(f64, {ensemble_.targets});
    std::copy(base.begin(), base.end(), row.data_as<double>());
    return scores + cast(row, scores.dtype());
  }

  const Node& node_;
  const Ensemble& ensemble_;
  const Tensor& x_;
  Forest forest_;
  std::vector<Tensor> columns_;  ///< [n, 1] of each target
  bool is_alone_ = false;        ///< there is one group
  Tensor whole_;                 ///< of all targets, if the only group has trees for each
};

}  // namespace

Tensor scores_of(const Node& node, const Ensemble& ensemble, const Tensor& x) {
  constexpr std::int64_t kMostTargets = 1 << 20;
  if (ensemble.targets < 1 || ensemble.targets > kMostTargets)
    node.malformed("n_targets", "1 to 2^20", std::to_string(ensemble.targets));
  return Scores(node, ensemble, x).all();
}

}  // namespace heddle::onnx
