#include "ir/analysis/happens_before.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::ir {

HappensBefore HappensBefore::in_stages(std::span<const std::uint32_t> stage_of) {
  HappensBefore order(1);
  order.lane_.assign(stage_of.size(), 0);
  order.place_.assign(stage_of.begin(), stage_of.end());
  order.ended_ = order.place_;
  return order;
}

HappensBefore HappensBefore::on_streams(const ScheduleRecord& record,
                                        std::span<const std::vector<StepId>> waits) {
  HD_CHECK(waits.size() == record.steps.size());
  std::uint32_t lanes = 1;
  for (const PlanStep& step : record.steps) lanes = std::max(lanes, step.stream + 1);
  HappensBefore order(lanes);
  order.ended_.assign(waits.size() * lanes, 0);
  std::vector<StepId> last(lanes, kNone);
  std::vector<std::uint32_t> length(lanes, 0);
  for (StepId k = 0; k < waits.size(); ++k) {
    const std::uint32_t lane = record.steps[k].stream;
    order.lane_.push_back(lane);
    order.place_.push_back(length[lane]++);
    if (last[lane] != kNone) order.follow(last[lane], k);
    for (const StepId first : waits[k]) {
      HD_CHECK(first < k, "a step waits for a later one");
      order.follow(first, k);
    }
    last[lane] = k;
  }
  return order;
}

void HappensBefore::follow(StepId first, StepId then) {
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    std::uint32_t& ended = ended_[then * lanes_ + lane];
    ended = std::max(ended, ended_[first * lanes_ + lane]);
  }
  std::uint32_t& own = ended_[then * lanes_ + lane_[first]];
  own = std::max(own, place_[first] + 1);
}

}  // namespace heddle::ir
