// Times of the steps of nested plans: what a branch or a loop spends its time on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/region_run.h"
#include "heddle/engine.h"

namespace heddle::engine {

/// What the steps of the plans that one step runs take, in all of their runs.
class NestedClock {
 public:
  bool empty() const { return entries_.empty(); }
  /// Runs the steps of a phase of such a plan one by one. @return as RegionMachine::run().
  std::int32_t run(const BoundSteps& plan, std::span<const scheduler::BoundStep> steps,
                   scheduler::Executor& executor);
  /// Adds the times of another one, which has none then.
  void take(NestedClock& other);
  /// Of one call of so many, in the order of their plans.
  std::vector<StepTime> times(int calls) const;

  /// The one that nested plans of this thread are told to; null: none, they run as executors do.
  static NestedClock* current();
  static NestedClock* set_current(NestedClock* clock);

 private:
  struct Entry {
    double microseconds = 0;
    std::int64_t runs = 0, bytes = 0, work = 0;
    std::unique_ptr<NestedClock> inside{};
  };
  std::map<std::pair<const Unit*, ir::StepId>, Entry> entries_;
};

/// Bytes of all buffers that a step reads or writes, each once.
std::int64_t bytes_of(const BoundSteps& plan, std::size_t step);

}  // namespace heddle::engine
