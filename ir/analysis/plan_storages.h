// Which values may lie in the same bytes, as the graph and the steps of a plan have it.
#pragma once

#include <map>
#include <string_view>

#include "ir/analysis/plan_nodes.h"

namespace heddle::ir {

class PlanStorages {
 public:
  PlanStorages(const Graph& graph, const ScheduleRecord& record, const PlanNodes& nodes);

  /// Whether the values called `a` and `b`, without '%', share storage in the graph, or are operand and result of custom
  /// ops that write where the operand lies.
  bool are_one(std::string_view a, std::string_view b) const;

 private:
  StorageId of(std::string_view value) const;
  StorageId root(StorageId storage) const;
  bool writes_in_place(const Node& node, StorageId operand) const;

  const ScheduleRecord& record_;
  const PlanNodes& nodes_;
  std::map<StorageId, StorageId> written_over_;  ///< by result's storage: the operand's
};

}  // namespace heddle::ir
