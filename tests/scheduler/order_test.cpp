#include "scheduler/order.h"

#include <gtest/gtest.h>
#include <random>

#include "heddle/error.h"

namespace heddle::scheduler {
namespace {

using ir::ScheduleRecord;

/// Step k writes buffer k + 1; buffer 0 is the input.
ScheduleRecord record_of(const std::vector<std::vector<ir::StepId>>& waits) {
  ScheduleRecord record;
  record.buffers.resize(waits.size() + 1);
  record.buffers[0].role = ir::PlanBuffer::Role::Input;
  for (std::uint32_t k = 0; k < waits.size(); ++k) {
    ir::PlanStep step;
    step.kernel = k;
    step.reads.push_back(0);
    step.writes.push_back(k + 1);
    for (const ir::StepId from : waits[k]) {
      step.edges.push_back({from, false});
      step.reads.push_back(from + 1);
    }
    record.steps.push_back(step);
    record.kernels.push_back({.name = "k" + std::to_string(k)});
  }
  return record;
}

TEST(Order, AValidOrderIsKept) {
  const Schedule schedule = scheduler::schedule(record_of({{}, {0}, {0}, {1, 2}}), {});
  EXPECT_EQ(schedule.given, (std::vector<ir::StepId>{0, 1, 2, 3}));
  check(schedule);
}

TEST(Order, IndependentStepsShareAStage) {
  const Schedule schedule = scheduler::schedule(record_of({{}, {0}, {0}, {1, 2}}), {});
  ASSERT_EQ(schedule.stages.size(), 3u);
  EXPECT_EQ(schedule.stages[1], (Stage{1, 2}));
  EXPECT_EQ(scheduler::schedule(record_of({{}, {0}, {0}, {1, 2}}), {.parallel_steps = false})
                .stages.size(),
            4u);
}

TEST(Order, AWeakEdgeKeepsStepsApart) {
  ScheduleRecord record = record_of({{}, {}});
  record.steps[1].edges.push_back({0, true});
  const Schedule schedule = scheduler::schedule(std::move(record), {});
  EXPECT_EQ(schedule.stages.size(), 2u);
  check(schedule);
}

TEST(Order, EdgesForwardAreSorted) {
  const Schedule schedule = scheduler::schedule(record_of({{2}, {}, {1}}), {});
  EXPECT_EQ(schedule.given, (std::vector<ir::StepId>{1, 2, 0}));
  check(schedule);
}

TEST(Order, ACycleIsListed) {
  try {
    scheduler::schedule(record_of({{2}, {0}, {1}}), {});
    ADD_FAILURE() << "no error";
  } catch (const CycleError& error) {
    EXPECT_EQ(error.parts().got, "k0 (step 0) -> k1 (step 1) -> k2 (step 2) -> k0 (step 0)");
  }
}

TEST(Order, TheCheckerFindsABrokenEdge) {
  Schedule schedule = scheduler::schedule(record_of({{}, {0}}), {});
  schedule.stages = {{0, 1}};
  EXPECT_THROW(check(schedule), InvariantError);
}

TEST(Order, RandomGraphs) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<ir::StepId>> waits(2 + random() % 30);
    for (std::uint32_t k = 1; k < waits.size(); ++k) {
      for (unsigned e = 0; e < random() % 3; ++e) waits[k].push_back(random() % k);
    }
    const Schedule schedule = scheduler::schedule(record_of(waits), {});
    check(schedule);
    EXPECT_EQ(schedule.given.size(), waits.size());
  }
}

}  // namespace
}  // namespace heddle::scheduler
