#include "ir/analysis/plan_storages.h"

#include <algorithm>

#include "ir/custom_op.h"
#include "ir/op.h"

namespace heddle::ir {

PlanStorages::PlanStorages(const Graph& graph, const ScheduleRecord& record, const PlanNodes& nodes)
    : record_(record), nodes_(nodes) {
  for (const NodePtr& node : graph.nodes()) {
    if (node->op().custom == nullptr) continue;
    const auto results = static_cast<std::uint32_t>(result_count(*node));
    const CustomLayout layout = layout_of(*node);
    for (std::uint32_t k = 0; k < layout.bases.size(); ++k) {
      const StorageId operand = node->input(layout.bases[k]).meta().storage;
      const StorageId result = node->output(results + k).storage;
      if (result != operand && writes_in_place(*node, root(operand)))
        written_over_.emplace(result, root(operand));
    }
  }
}

/// Whether a step of the node overwrites a buffer that holds `operand`, a root.
bool PlanStorages::writes_in_place(const Node& node, StorageId operand) const {
  return std::ranges::any_of(nodes_.computing(&node), [&](StepId step) {
    const PlanStep& own = record_.steps[step];
    return std::ranges::any_of(own.writes, [&](BufferId buffer) {
      return std::ranges::find(own.reads, buffer) != own.reads.end() &&
             root(of(record_.buffers[buffer].value)) == operand;
    });
  });
}

StorageId PlanStorages::root(StorageId storage) const {
  for (auto next = written_over_.find(storage); next != written_over_.end();
       next = written_over_.find(storage))
    storage = next->second;
  return storage;
}

StorageId PlanStorages::of(std::string_view value) const {
  const Node* node = nodes_.named(value);
  for (std::uint32_t k = 0; node != nullptr && k < node->outputs().size(); ++k)
    if (node->names()[k] == value) return node->output(k).storage;
  return 0;
}

bool PlanStorages::are_one(std::string_view a, std::string_view b) const {
  return of(a) != 0 && root(of(a)) == root(of(b));
}

}  // namespace heddle::ir
