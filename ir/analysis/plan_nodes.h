// Which steps of a plan compute which nodes of its graph.
#pragma once

#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"
#include "ir/schedule.h"

namespace heddle::ir {

using StepSet = std::vector<StepId>;

class PlanNodes {
 public:
  PlanNodes(const Graph& graph, const ScheduleRecord& record);

  /// The node that makes the value called `name`, without '%'; null: none.
  const Node* named(std::string_view name) const;
  /// Steps whose kernels compute `node`; several where it is cheap to compute again.
  const StepSet& computing(const Node* node) const;
  /// The nodes that a step computes. Copies compute none.
  const std::unordered_set<const Node*>& computed_by(StepId step) const { return nodes_[step]; }
  /// Whether `step` writes a buffer that is named for a value of `node`.
  bool stores(StepId step, const Node* node) const;

  /// The nodes that have run when the bytes of `node` are there: itself, or, of a view that lies in no memory
  /// of its own, what it looks at.
  std::vector<const Node*> behind(const Node* node) const;
  /// The nodes that run when `node` is evaluated: itself, or, of such a view, those that read it.
  std::vector<const Node*> evaluating(const Node* node) const;
  /// Whether data leads from `first` to `then`.
  bool leads_to(const Node* first, const Node* then) const;

 private:
  bool lies_in_memory(const Node* view) const;

  const ScheduleRecord& record_;
  std::unordered_map<std::string_view, const Node*> names_;
  std::unordered_map<const Node*, StepSet> steps_;
  std::vector<std::unordered_set<const Node*>> nodes_;
  std::unordered_map<const Node*, std::vector<const Node*>> users_;
  std::unordered_map<const Node*, std::size_t> positions_;
};

}  // namespace heddle::ir
