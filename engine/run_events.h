// The run trace: what happens to the engine's memory while a plan runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/region_run.h"
#include "heddle/engine.h"
#include "ir/schedule.h"

namespace heddle::engine {

/// Names of the record's kernels, made unique: "copy", "copy_1", …
std::vector<std::string> names_of_kernels(const ir::ScheduleRecord& record);

/// Argument `position` of a program's graph.
const ir::Node* argument_of(const ir::Graph& graph, std::uint32_t position);

/// Who runs the steps of a traced run.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// Runs step `step` of a frame. @return as RegionMachine::run().
  virtual std::int32_t run_step(Frame& frame, std::size_t step) = 0;
  /// Sets memory of the steps to `value` when those given so far have run.
  virtual void overwrite(void* memory, unsigned char value, std::size_t bytes) = 0;
};

/// Runs the steps of one phase one by one, overwrites what they give back, and appends what happened.
/// @return as RegionMachine::run().
std::int32_t run_step_by_step(Frame& frame, StepRunner& runner, std::vector<RunEvent>& events);

}  // namespace heddle::engine
