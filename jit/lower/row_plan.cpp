#include "jit/lower/row_plan.h"

#include <algorithm>
#include <set>

#include "ir/op.h"

namespace heddle::jit {
namespace {

/// Elements that cost so many operations are kept rather than computed again in a later pass.
constexpr std::size_t kKeepOperations = 12;

class Planner {
 public:
  explicit Planner(const Kernel& kernel)
      : kernel_(kernel), reads_(kernel.state.reads), graph_(kernel.state.graph()) {
    for (const Node* node : kernel.group.nodes) {
      roles_[node] = row_role(kernel.group, reads_, node);
      levels_[node] = level_of(node);
    }
  }

  RowPlan run(bool may_keep) {
    place_reductions();
    place_stores();
    if (may_keep) place_keeps();
    return std::move(plan_);
  }

 private:
  bool in_group(const Node* node) const { return roles_.count(node) != 0; }

  /// The pass in which the node's elements can be computed first.
  std::size_t level_of(const Node* node) const {
    std::size_t level = 0;
    for (const Read& read : reads_.of(node).reads) {
      const auto found = levels_.find(read.value.node);
      if (found == levels_.end()) continue;
      const bool reduction = roles_.at(read.value.node) == RowRole::Reduce;
      level = std::max(level, found->second + (reduction ? 1 : 0));
    }
    return level;
  }

  RowPass& pass(std::size_t level) {
    if (plan_.passes.size() <= level) plan_.passes.resize(level + 1);
    return plan_.passes[level];
  }

  void place_reductions() {
    for (const Node* node : kernel_.group.nodes)
      if (roles_.at(node) == RowRole::Reduce) pass(levels_.at(node)).reductions.push_back(node);
  }

  void place_stores() {
    for (const Value& value : kernel_.stored) {
      const std::size_t level = levels_.at(value.node);
      switch (roles_.at(value.node)) {
        case RowRole::Full:
          pass(level).stores.push_back(value);
          break;
        case RowRole::Reduce:
          pass(level).rows.push_back(value);
          break;
        default:
          (level == 0 ? plan_.early_rows : pass(level - 1).rows).push_back(value);
          break;
      }
    }
  }

  /// Elements that are expensive and needed in a later pass than the one that can compute them first.
  void place_keeps() {
    for (std::size_t level = 1; level < plan_.passes.size(); ++level) {
      std::set<const Node*> seen;
      for (const Node* node : plan_.passes[level].reductions) descend(node, level, seen);
      for (const Value& value : plan_.passes[level].stores) descend(value.node, level, seen);
    }
  }

  void descend(const Node* node, std::size_t level, std::set<const Node*>& seen) {
    if (!seen.insert(node).second) return;
    for (const Read& read : reads_.of(node).reads) {
      const Node* operand = read.value.node;
      if (!in_group(operand) || roles_.at(operand) != RowRole::Full) continue;
      const std::size_t first = levels_.at(operand);
      if (first < level && is_at_hand(operand)) continue;
      if (first < level && is_used_in(operand, first) && is_costly(operand)) {
        pass(first).keeps.push_back(read.value);
        kept_.insert(operand);
        continue;
      }
      descend(operand, level, seen);
    }
  }

  bool is_at_hand(const Node* node) const {
    return kept_.count(node) != 0 || kernel_.memory.is_stored(node->value());
  }

  /// Whether pass `level` computes the node's elements anyway.
  bool is_used_in(const Node* node, std::size_t level) const {
    std::set<const Node*> seen;
    for (const Node* reduction : plan_.passes[level].reductions)
      if (reaches(reduction, node, seen)) return true;
    for (const Value& value : plan_.passes[level].stores)
      if (value.node == node || reaches(value.node, node, seen)) return true;
    return false;
  }

  bool reaches(const Node* from, const Node* node, std::set<const Node*>& seen) const {
    if (from == node) return true;
    if (!in_group(from) || !seen.insert(from).second) return false;
    for (const Read& read : reads_.of(from).reads)
      if (in_group(read.value.node) && roles_.at(read.value.node) != RowRole::Reduce &&
          reaches(read.value.node, node, seen))
        return true;
    return false;
  }

  bool is_costly(const Node* node) const {
    std::set<const Node*> cone;
    std::vector<const Node*> pending{node};
    while (!pending.empty()) {
      const Node* next = pending.back();
      pending.pop_back();
      if (graph_.class_of(next) == NodeClass::Source || is_loaded(next)) continue;
      if (in_group(next) && roles_.at(next) != RowRole::Full) continue;
      if (!cone.insert(next).second) continue;
      if (next->op().expensive) return true;
      for (const Value& input : next->inputs())
        if (input) pending.push_back(input.node);
    }
    return cone.size() >= kKeepOperations;
  }

  bool is_loaded(const Node* node) const {
    return kernel_.memory.is_loaded(graph_.storage(node->value()));
  }

  const Kernel& kernel_;
  const ReadAnalysis& reads_;
  const LiveGraph& graph_;
  std::map<const Node*, RowRole> roles_;
  std::map<const Node*, std::size_t> levels_;
  std::set<const Node*> kept_;
  RowPlan plan_;
};

}  // namespace

RowPlan plan_row(const Kernel& kernel, bool may_keep) { return Planner(kernel).run(may_keep); }

}  // namespace heddle::jit
