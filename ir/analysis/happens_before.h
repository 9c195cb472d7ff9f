// The partial order in which an executor runs steps.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/schedule.h"

namespace heddle::ir {

/// Which steps have finished when another one begins, because the executor makes sure of it: a clock a
/// step, which says how far each lane (the stages, or a stream) has come.
class HappensBefore {
 public:
  /// Stages run one after another, the steps of one stage perhaps together.
  static HappensBefore in_stages(std::span<const std::uint32_t> stage_of);
  /// The steps of each stream run in the order of the record; step k begins when those of waits[k], all
  /// before it, have ended too.
  static HappensBefore on_streams(const ScheduleRecord& record,
                                  std::span<const std::vector<StepId>> waits);

  bool operator()(StepId first, StepId then) const {
    return place_[first] < ended_[then * lanes_ + lane_[first]];
  }
  std::size_t steps() const { return place_.size(); }

 private:
  explicit HappensBefore(std::size_t lanes) : lanes_(lanes) {}
  /// Step `then` begins after step `first` has ended.
  void follow(StepId first, StepId then);

  std::size_t lanes_;
  std::vector<std::uint32_t> lane_;
  std::vector<std::uint32_t> place_;  ///< in its lane
  std::vector<std::uint32_t>
      ended_;  ///< by step and lane: places that have ended when the step begins
};

}  // namespace heddle::ir
