// Which stream each step of a plan runs on, and which events order them.
//
//   chains   a path cover of the steps' edges with as many edges as possible inside of paths: each edge
//            inside needs no event (maximum matching between steps and direct successors; of more steps than
//            kMostMatched, one that is not maximum)
//   streams  chains dealt out to as many streams as are allowed
//   waits    in the order of steps: an edge from another stream becomes a wait unless streams and earlier
//            waits already imply it
//
// Source: W. Kwon et al., "Nimble: Lightweight and Parallel GPU Task Scheduling for Deep Learning",
// NeurIPS 2020: matching in the minimum equivalent graph gives the fewest synchronisations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/analysis/step_clocks.h"
#include "ir/schedule.h"

namespace heddle::scheduler {

inline constexpr std::size_t kMostMatched = 4096;

/// Steps are given to their streams in the record's order. Each stream begins after one event of the
/// caller's (the first stream, 0, is where the caller's own work goes), and stream 0 ends after all.
struct StreamPlan {
  std::uint32_t streams = 1;
  std::vector<std::uint32_t> stream_of;            ///< by step
  std::vector<std::vector<ir::StepId>> waits_for;  ///< by step: steps whose events it waits for
  std::vector<bool> records;                       ///< by step: whether an event follows it
  std::vector<ir::StepId> joins;  ///< steps whose events stream 0 waits for at the end
  ir::StepClocks clocks;          ///< steps that are done when another begins; a lane a stream

  /// Whether step `first` is done before step `second` begins.
  bool ordered(ir::StepId first, ir::StepId second) const { return clocks.ordered(first, second); }
  /// Waits inside the plan: without those at its begin and end.
  std::size_t event_waits() const;
};

/// @param record  steps in a valid order; all of its edges, weak ones too, are kept
/// @param pins    by step: the stream it must be on, modulo `max_streams`; may be empty
/// Cost: steps times edges up to kMostMatched steps, n log n beyond.
StreamPlan assign_streams(const ir::ScheduleRecord& record, std::uint32_t max_streams,
                          std::span<const std::optional<std::uint32_t>> pins = {});

/// Independent check: every edge of `record` holds in the order that streams and events give, which it
/// works out anew. @throws InvariantError naming both steps.
void check(const ir::ScheduleRecord& record, const StreamPlan& plan);

}  // namespace heddle::scheduler
