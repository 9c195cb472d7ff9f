#include "engine/nested_clock.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/run_events.h"
#include "engine/unit.h"

namespace heddle::engine {

namespace {

thread_local NestedClock* told = nullptr;

/// Names of the kernels of each unit, each found once.
class KernelNames {
 public:
  const std::string& of(const Unit& unit, ir::StepId step) {
    std::vector<std::string>& names = names_[&unit];
    const ir::ScheduleRecord& record = unit.schedule().record;
    if (names.empty()) names = names_of_kernels(record);
    return names[record.steps[step].kernel];
  }

 private:
  std::map<const Unit*, std::vector<std::string>> names_;
};

}  // namespace

NestedClock* NestedClock::current() { return told; }

NestedClock* NestedClock::set_current(NestedClock* clock) { return std::exchange(told, clock); }

std::int32_t NestedClock::run(const BoundSteps& plan, std::span<const scheduler::BoundStep> steps,
                              scheduler::Executor& executor) {
  using Clock = std::chrono::steady_clock;
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    Entry& entry = entries_[{plan.unit, plan.first_step + static_cast<ir::StepId>(k)}];
    if (plan.regions[k] != nullptr && entry.inside == nullptr)
      entry.inside = std::make_unique<NestedClock>();
    NestedClock* const around = set_current(entry.inside.get());
    const scheduler::BoundStage alone{static_cast<std::uint32_t>(k), 1};
    const auto start = Clock::now();
    const std::int32_t status = executor.run(steps, {&alone, 1});
    entry.microseconds += std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    set_current(around);
    ++entry.runs;
    entry.bytes += bytes_of(plan, plan.first_step + k);
    entry.work += plan.steps[k].work;
    if (status != 0) return status;
  }
  return 0;
}

void NestedClock::take(NestedClock& other) {
  for (auto& [key, entry] : other.entries_) {
    Entry& mine = entries_[key];
    mine.microseconds += entry.microseconds;
    mine.runs += entry.runs;
    mine.bytes += entry.bytes;
    mine.work += entry.work;
    if (mine.inside == nullptr)
      mine.inside = std::move(entry.inside);
    else if (entry.inside != nullptr)
      mine.inside->take(*entry.inside);
  }
  other.entries_.clear();
}

std::vector<StepTime> NestedClock::times(int calls) const {
  KernelNames names;
  std::vector<StepTime> steps;
  for (const auto& [key, entry] : entries_) {
    const auto& [unit, step] = key;
    steps.push_back({.step = step,
                     .kernel = names.of(*unit, step),
                     .microseconds = entry.microseconds / calls,
                     .bytes = entry.bytes / calls,
                     .work = entry.work / calls,
                     .runs = static_cast<double>(entry.runs) / calls});
    if (entry.inside != nullptr) steps.back().inside = entry.inside->times(calls);
  }
  return steps;
}

std::int64_t bytes_of(const BoundSteps& plan, std::size_t step) {
  const ir::ScheduleRecord& record = plan.unit->schedule().record;
  std::vector<ir::BufferId> buffers = record.steps[step].reads;
  buffers.insert(buffers.end(), record.steps[step].writes.begin(), record.steps[step].writes.end());
  std::ranges::sort(buffers);
  buffers.erase(std::ranges::unique(buffers).begin(), buffers.end());
  std::int64_t bytes = 0;
  for (const ir::BufferId buffer : buffers)
    bytes += record.buffers[buffer].bytes.evaluate(plan.sizes);
  return bytes;
}

}  // namespace heddle::engine
