// Which steps are done when another begins, as counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/schedule.h"

namespace heddle::ir {

/// The order that streams and their events keep, or stages, which are one lane.
///
/// Steps of a lane are numbered by `place_of`; a step begins when the first `done(step)[lane]` places of each lane
/// are done. It is transitive: what is done before `a` begins is done before what waits for `a`.
struct StepClocks {
  std::uint32_t lanes = 1;
  std::vector<std::uint32_t> lane_of;   ///< by step
  std::vector<std::uint32_t> place_of;  ///< by step
  std::vector<std::uint32_t> counts;    ///< by step and lane

  std::span<const std::uint32_t> done(StepId step) const {
    return std::span(counts).subspan(std::size_t{step} * lanes, lanes);
  }
  /// Whether step `first` is done before step `second` begins.
  bool ordered(StepId first, StepId second) const {
    return place_of[first] < counts[std::size_t{second} * lanes + lane_of[first]];
  }
};

}  // namespace heddle::ir
