// The order of steps, and which of them may run at the same time.
#pragma once

#include <span>
#include <vector>

#include "ir/schedule.h"
#include "scheduler/peak_order.h"

namespace heddle::scheduler {

/// Steps that run together: none of them depends on another one of the stage.
using Stage = std::vector<ir::StepId>;

/// A record's steps, reordered (edges renumbered) and cut into stages; every edge leads from an earlier
/// stage to a later one. Concatenated, the stages are 0, 1, 2, …: the order of `record.steps`.
struct Schedule {
  ir::ScheduleRecord record;
  std::vector<Stage> stages;
  /// Step k of `record` was step given[k] before.
  std::vector<ir::StepId> given;
  Method method = Method::Given;  ///< which order was taken
  /// The peak of each order that was compared, in bytes; empty when none were.
  std::vector<std::pair<Method, std::int64_t>> peaks;
};

struct ScheduleOptions {
  bool parallel_steps = true;  ///< false: one step a stage
  /// Compare the peak memory of all methods and take the first of the smallest ones; false: `method`.
  bool reorder = true;
  Method method = Method::Given;
  base::SymbolValues hints;  ///< sizes that the choice is made for
  /// Steps of the record given that begin a stage: before them all earlier ones must be done.
  std::vector<ir::StepId> fences{};
};

/// @throws CycleError listing the steps of a cycle.
Schedule schedule(ir::ScheduleRecord record, const ScheduleOptions& options);

/// `schedule` with its steps in `order`, one a stage. Every edge has to point backwards there.
Schedule in_order(Schedule schedule, const std::vector<ir::StepId>& order);

/// The stage of each step.
std::vector<std::uint32_t> stage_numbers(const Schedule& schedule);

/// Independent check: every strong and weak edge holds, every read buffer was written before (or is an
/// input, parameter or constant), no step of a stage writes what another one of it touches.
/// @throws InvariantError naming the steps.
void check(const Schedule& schedule);

}  // namespace heddle::scheduler
