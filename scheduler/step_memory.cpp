#include "scheduler/step_memory.h"

#include <algorithm>

namespace heddle::scheduler {

using ir::BufferId;
using ir::PlanBuffer;
using ir::StepId;

namespace {

std::int64_t bytes_under(const base::SymExpr& bytes, base::SymbolValues& sizes) {
  std::vector<base::Symbol> symbols;
  bytes.collect_symbols(symbols);
  for (const base::Symbol& symbol : symbols) sizes.try_emplace(symbol, 1);
  return bytes.evaluate(sizes);
}

StepMemory::Kind kind_of(const PlanBuffer& buffer) {
  if (buffer.donated) return StepMemory::Kind::Given;
  switch (buffer.role) {
    case PlanBuffer::Role::Intermediate:
    case PlanBuffer::Role::Workspace:
      return StepMemory::Kind::Freed;
    case PlanBuffer::Role::Output:
      return StepMemory::Kind::Kept;
    default:
      return StepMemory::Kind::Ignored;
  }
}

void add_once(std::vector<BufferId>& list, BufferId buffer) {
  if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
}

}  // namespace

StepMemory::StepMemory(const ir::ScheduleRecord& record, base::SymbolValues sizes)
    : record_(record),
      bytes_(record.buffers.size(), 0),
      kinds_(record.buffers.size(), Kind::Ignored),
      touched_(record.steps.size()),
      touching_(record.buffers.size()) {
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    roots_.push_back(ir::alias_root(record, b));
    kinds_[b] = kind_of(record.buffers[b]);
    if (kinds_[roots_[b]] == Kind::Ignored && roots_[b] != b) continue;
    std::int64_t& bytes = bytes_[roots_[b]];
    bytes = std::max(bytes, bytes_under(record.buffers[b].bytes, sizes));
  }
  for (StepId step = 0; step < record.steps.size(); ++step) {
    for (const auto* list : {&record.steps[step].writes, &record.steps[step].reads}) {
      for (const BufferId buffer : *list)
        if (kinds_[roots_[buffer]] != Kind::Ignored) add_once(touched_[step], roots_[buffer]);
    }
    for (const BufferId buffer : touched_[step]) touching_[buffer].push_back(step);
  }
}

std::int64_t StepMemory::given_bytes() const {
  std::int64_t sum = 0;
  for (BufferId b = 0; b < bytes_.size(); ++b)
    if (kinds_[b] == Kind::Given && !touching_[b].empty()) sum += bytes_[b];
  return sum;
}

std::int64_t StepMemory::output_bytes() const {
  std::int64_t sum = 0;
  for (BufferId b = 0; b < bytes_.size(); ++b)
    if (kinds_[b] == Kind::Kept && roots_[b] == b) sum += bytes_[b];
  return sum;
}

std::vector<std::int64_t> StepMemory::live_by_group(std::span<const StepId> order,
                                                    std::span<const std::uint32_t> group_of) const {
  const std::uint32_t groups = order.empty() ? 0 : group_of.back() + 1;
  std::vector<std::uint32_t> first(bytes_.size(), groups);
  std::vector<std::uint32_t> last(bytes_.size(), 0);
  for (std::size_t place = 0; place < order.size(); ++place) {
    for (const BufferId buffer : touched_[order[place]]) {
      first[buffer] = std::min(first[buffer], group_of[place]);
      last[buffer] = std::max(last[buffer], group_of[place]);
    }
  }
  std::vector<std::int64_t> change(groups + 1, 0);
  for (BufferId b = 0; b < bytes_.size(); ++b) {
    if (first[b] == groups) continue;
    change[kinds_[b] == Kind::Given ? 0 : first[b]] += bytes_[b];
    if (is_freed(b)) change[last[b] + 1] -= bytes_[b];
  }
  // A result that takes a dying operand's bytes is not allocated beside it.
  for (std::size_t place = 0; place < order.size(); ++place) {
    const ir::PlanStep& step = record_.steps[order[place]];
    std::vector<BufferId> taken;
    for (const auto& [read, write] : step.may_reuse) {
      const BufferId from = roots_[step.reads[read]];
      const BufferId to = roots_[step.writes[write]];
      const bool fits = from != to && bytes_[from] == bytes_[to] && kinds_[from] == Kind::Freed &&
                        kinds_[to] == Kind::Freed && last[from] == group_of[place] &&
                        first[to] == group_of[place];
      if (!fits || std::find(taken.begin(), taken.end(), from) != taken.end()) continue;
      taken.push_back(from);
      change[group_of[place]] -= bytes_[from];
      change[group_of[place] + 1] += bytes_[from];
    }
  }
  std::vector<std::int64_t> live(groups, 0);
  std::int64_t sum = 0;
  for (std::uint32_t k = 0; k < groups; ++k) live[k] = sum += change[k];
  return live;
}

std::vector<std::int64_t> StepMemory::live(std::span<const StepId> order) const {
  std::vector<std::uint32_t> own(order.size());
  for (std::uint32_t k = 0; k < own.size(); ++k) own[k] = k;
  return live_by_group(order, own);
}

std::int64_t StepMemory::peak(std::span<const StepId> order,
                              std::span<const std::uint32_t> group_sizes) const {
  std::vector<std::uint32_t> group_of;
  for (std::uint32_t k = 0; k < group_sizes.size(); ++k)
    group_of.insert(group_of.end(), group_sizes[k], k);
  const std::vector<std::int64_t> bytes =
      group_sizes.empty() ? live(order) : live_by_group(order, group_of);
  return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
}

}  // namespace heddle::scheduler
