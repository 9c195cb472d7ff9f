// Donated arguments of a unit: when they are let go of, and which outputs may take their place.
#include <algorithm>

#include "engine/cuda_unit.h"
#include "engine/unit.h"

namespace heddle::engine {

namespace {

using ir::BufferId;
using ir::PlanBuffer;
using ir::StepId;

/// The order that the executor keeps: of streams, or of stages, which are one lane.
ir::StepClocks clocks_of(const scheduler::Schedule& schedule, const CudaUnit* cuda) {
  if (cuda != nullptr) return cuda->streams().clocks;
  ir::StepClocks clocks;
  clocks.place_of = scheduler::stage_numbers(schedule);
  clocks.lane_of.assign(clocks.place_of.size(), 0);
  clocks.counts = clocks.place_of;
  return clocks;
}

bool touches(const std::vector<BufferId>& list, std::span<const BufferId> roots, BufferId root) {
  return std::ranges::any_of(list, [&](BufferId buffer) { return roots[buffer] == root; });
}

/// Whether the kernel of `step`, which reads `from` and does not write it, may write `to` there.
bool may_replace(const ir::PlanStep& step, std::span<const BufferId> roots, BufferId from,
                 BufferId to) {
  if (touches(step.writes, roots, from)) return false;
  return std::ranges::any_of(step.may_reuse, [&](const auto& pair) {
    return roots[step.reads[pair.first]] == from && roots[step.writes[pair.second]] == to;
  });
}

/// The steps that touch each buffer that owns its bytes, in order.
std::vector<std::vector<StepId>> steps_by_root(const ir::ScheduleRecord& record,
                                               std::span<const BufferId> roots) {
  std::vector<std::vector<StepId>> steps(record.buffers.size());
  for (StepId step = 0; step < record.steps.size(); ++step)
    for (const auto* list : {&record.steps[step].reads, &record.steps[step].writes})
      for (const BufferId buffer : *list)
        if (steps[roots[buffer]].empty() || steps[roots[buffer]].back() != step)
          steps[roots[buffer]].push_back(step);
  return steps;
}

/// Whether each of `steps` is done before each of `then` begins.
bool all_ordered(std::span<const StepId> steps, std::span<const StepId> then,
                 const ir::StepClocks& clocks) {
  std::vector<std::uint32_t> until(clocks.lanes, 0);  // how many places of each lane must be done
  for (const StepId step : steps) {
    std::uint32_t& places = until[clocks.lane_of[step]];
    places = std::max(places, clocks.place_of[step] + 1);
  }
  return std::ranges::all_of(then, [&](StepId step) {
    return std::ranges::equal(until, clocks.done(step), std::less_equal<>());
  });
}

/// Whether an output that `writers` touch may lie where an argument does that `readers` touch. Where a step does both,
/// `may_replace` says whether it may.
template <typename F>
bool may_follow(std::vector<StepId> readers, std::vector<StepId> writers,
                const ir::StepClocks& clocks, F&& may_replace) {
  std::vector<StepId> both;
  std::ranges::set_intersection(readers, writers, std::back_inserter(both));
  if (both.size() > 1 || (both.size() == 1 && !may_replace(both[0]))) return false;
  const auto is_both = [&](StepId step) { return !both.empty() && step == both[0]; };
  std::erase_if(readers, is_both);
  std::erase_if(writers, is_both);
  return all_ordered(readers, both, clocks) && all_ordered(both, writers, clocks) &&
         all_ordered(readers, writers, clocks);
}

}  // namespace

bool Unit::may_share(std::uint32_t argument, std::uint32_t output) const {
  return std::ranges::find(shared_places_, ir::SharedPlace{argument, output}) !=
         shared_places_.end();
}

/// All accesses of the argument come before those of the output, but for one kernel that may overwrite the one
/// with the other.
void Unit::find_shared_places() {
  const ir::ScheduleRecord& record = schedule_.record;
  const auto roots = planner_->roots();
  if (std::ranges::none_of(record.buffers, &PlanBuffer::donated)) return;
  const ir::StepClocks clocks = clocks_of(schedule_, cuda_.get());
  const auto steps = steps_by_root(record, roots);
  for (BufferId from = 0; from < record.buffers.size(); ++from) {
    if (!record.buffers[from].donated) continue;
    for (BufferId to = 0; to < record.buffers.size(); ++to) {
      if (record.buffers[to].role != PlanBuffer::Role::Output || roots[to] != to) continue;
      const auto replaces = [&](StepId step) {
        return may_replace(record.steps[step], roots, from, to);
      };
      if (may_follow(steps[from], steps[to], clocks, replaces))
        shared_places_.push_back({record.buffers[from].position, record.buffers[to].position});
    }
  }
}

void Unit::bind_releases(BoundSteps& plan) const {
  const ir::ScheduleRecord& record = schedule_.record;
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    if (!record.buffers[b].donated) continue;
    const StepId last = planner_->lifetimes()[b].last_step;
    if (last == ir::kNone) {
      if (plan.phase == 0) plan.releases.push_back({0, record.buffers[b].position});
      continue;
    }
    if (last < plan.first_step || last >= plan.first_step + plan.steps.size()) continue;
    const auto stage = std::ranges::find_if(plan.stages, [&](const scheduler::BoundStage& each) {
      return last - plan.first_step < each.first + each.count;
    });
    plan.releases.push_back(
        {static_cast<std::uint32_t>(stage - plan.stages.begin()) + 1, record.buffers[b].position});
  }
  std::ranges::stable_sort(plan.releases, {}, &Release::stages);
}

}  // namespace heddle::engine
