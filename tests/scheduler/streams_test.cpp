// Streams and events of schedules: few events, every edge kept, and the checker notices each one that
// is missing.
#include "scheduler/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "heddle/error.h"
#include "memory/planner.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Steps with these predecessors; step k makes buffer k of 64 bytes and reads those of its predecessors.
ir::ScheduleRecord kernels_after(const std::vector<std::vector<ir::StepId>>& predecessors) {
  ir::ScheduleRecord record;
  for (ir::StepId k = 0; k < predecessors.size(); ++k) {
    ir::PlanBuffer buffer;
    buffer.value = "b" + std::to_string(k);
    buffer.bytes = 64;
    record.buffers.push_back(buffer);
    record.kernels.push_back({"k" + std::to_string(k), {}, {}, ir::PlanKernel::Kind::Jit});
    ir::PlanStep step;
    step.kernel = k;
    step.writes = {k};
    for (const ir::StepId from : predecessors[k]) {
      step.edges.push_back({from, false});
      step.reads.push_back(from);
    }
    record.steps.push_back(step);
  }
  return record;
}

TEST(Streams, AChainNeedsNoEvent) {
  const StreamPlan plan = assign_streams(kernels_after({{}, {0}, {1}, {2}}), 4);
  EXPECT_EQ(plan.streams, 1u);
  EXPECT_EQ(plan.event_waits(), 0u);
  EXPECT_THAT(plan.joins, IsEmpty());
}

// 0 -> 1 -> 3, 0 -> 2 -> 3: two streams, an event where they part and one where they meet.
TEST(Streams, ADiamondNeedsTwoEvents) {
  const StreamPlan plan = assign_streams(kernels_after({{}, {0}, {0}, {1, 2}}), 4);
  EXPECT_EQ(plan.streams, 2u);
  EXPECT_EQ(plan.event_waits(), 2u);
  EXPECT_NE(plan.stream_of[1], plan.stream_of[2]);
  EXPECT_EQ(plan.stream_of[3], 0u);
  EXPECT_THAT(plan.joins, IsEmpty()) << "step 3 has waited for all";
}

TEST(Streams, IndependentChainsRunSideBySideAndAreJoined) {
  const StreamPlan plan = assign_streams(kernels_after({{}, {0}, {}, {2}, {}, {4}}), 4);
  EXPECT_THAT(plan.stream_of, ElementsAre(2, 2, 1, 1, 0, 0));
  EXPECT_EQ(plan.event_waits(), 0u);
  EXPECT_THAT(plan.joins, ElementsAre(3, 1));
}

TEST(Streams, EdgesThatOthersImplyNeedNoEvent) {
  // 2 and 3 both need 0; 3 follows 2.
  const StreamPlan plan = assign_streams(kernels_after({{}, {}, {0, 1}, {0, 1, 2}}), 4);
  EXPECT_EQ(plan.event_waits(), 1u);
}

TEST(Streams, PinnedStepsAreWhereTheyArePut) {
  const ir::ScheduleRecord record = kernels_after({{}, {0}, {1}, {2}});
  const std::optional<std::uint32_t> pins[] = {std::nullopt, 2, std::nullopt, 5};
  const StreamPlan plan = assign_streams(record, 3, pins);
  EXPECT_THAT(plan.stream_of, ElementsAre(0, 2, 0, 2));  // 5 is 2 of three
  EXPECT_EQ(plan.streams, 3u);
  EXPECT_EQ(plan.event_waits(), 3u);
  EXPECT_THAT(plan.joins, ElementsAre(3));
  check(record, plan);
}

TEST(Streams, NoMoreStreamsThanAllowed) {
  for (const std::uint32_t most : {1u, 2u, 3u}) {
    const auto record = kernels_after({{}, {}, {}, {}, {0}, {1}, {2}, {3}, {4, 5, 6, 7}});
    const StreamPlan plan = assign_streams(record, most);
    EXPECT_EQ(plan.streams, most);
    EXPECT_NO_THROW(check(record, plan));
  }
}

ir::ScheduleRecord random_record(std::uint32_t seed) {
  std::mt19937 random(seed);
  const std::size_t count = 1 + random() % 30;
  std::vector<std::vector<ir::StepId>> predecessors(count);
  for (ir::StepId k = 1; k < count; ++k)
    for (ir::StepId from = 0; from < k; ++from)
      if (random() % 100 < 12) predecessors[k].push_back(from);
  return kernels_after(predecessors);
}

TEST(Streams, RandomSchedulesKeepEveryEdgeAndEachWaitIsNeeded) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const ir::ScheduleRecord record = random_record(seed);
    const StreamPlan plan = assign_streams(record, 1 + seed % 5);
    ASSERT_NO_THROW(check(record, plan));
    for (ir::StepId step = 0; step < record.steps.size(); ++step) {
      for (std::size_t w = 0; w < plan.waits_for[step].size(); ++w) {
        StreamPlan broken = plan;
        broken.waits_for[step].erase(broken.waits_for[step].begin() +
                                     static_cast<std::ptrdiff_t>(w));
        EXPECT_THROW(check(record, broken), InvariantError) << "step " << step << ", wait " << w;
      }
    }
    for (std::size_t j = 0; j < plan.joins.size(); ++j) {
      StreamPlan broken = plan;
      broken.joins.erase(broken.joins.begin() + static_cast<std::ptrdiff_t>(j));
      EXPECT_THROW(check(record, broken), InvariantError) << "join " << j;
    }
  }
}

/// Bytes are shared only by what streams and events order; with one stream, by all that a single
/// order allows.
TEST(Streams, MemoryIsSharedOnlyWhereAnEventOrdersIt) {
  std::int64_t shared = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const ir::ScheduleRecord record = random_record(seed);
    const StreamPlan plan = assign_streams(record, 4);
    const auto ordered = [&](ir::StepId a, ir::StepId b) { return plan.ordered(a, b); };
    std::vector<std::uint32_t> stages(record.steps.size());
    for (std::uint32_t k = 0; k < stages.size(); ++k) stages[k] = k;
    const memory::Planner planner(record, stages, {.clocks = &plan.clocks});
    const memory::MemoryPlan memory = planner.bind({});
    ASSERT_NO_THROW(memory::check_streams(record, {}, memory, ordered));
    shared += static_cast<std::int64_t>(record.steps.size()) * 64 - memory.peak_bytes;
  }
  EXPECT_GT(shared, 0);
}

// More steps than are matched by augmenting paths: every edge is kept, by far fewer waits than edges.
TEST(Streams, ManyStepsKeepEveryEdge) {
  std::mt19937 random(3);
  std::vector<std::vector<ir::StepId>> predecessors(kMostMatched + 1000);
  std::size_t edges = 0;
  for (ir::StepId k = 1; k < predecessors.size(); ++k)
    for (int n = 0; n < 3; ++n, ++edges)
      predecessors[k].push_back(k - 1 - static_cast<ir::StepId>(random() % std::min(k, 40u)));
  const ir::ScheduleRecord record = kernels_after(predecessors);
  const StreamPlan plan = assign_streams(record, 4);
  ASSERT_NO_THROW(check(record, plan));
  EXPECT_EQ(plan.streams, 4u);
  EXPECT_LT(plan.event_waits(), edges / 2);
  for (ir::StepId step = 0; step < record.steps.size(); step += 97) {
    for (const ir::StepId from : plan.waits_for[step]) {
      StreamPlan broken = plan;
      std::erase(broken.waits_for[step], from);
      EXPECT_THROW(check(record, broken), InvariantError) << from << " before " << step;
    }
  }
}

// Two chains side by side: what a single order would let share bytes, streams do not.
TEST(Streams, APlanForOneStreamDoesNotServeTwo) {
  const ir::ScheduleRecord record = kernels_after({{}, {0}, {}, {2}});
  const StreamPlan plan = assign_streams(record, 2);
  const std::vector<std::uint32_t> stages = {0, 1, 2, 3};
  const memory::MemoryPlan one = memory::Planner(record, stages, {}).bind({});
  const auto ordered = [&](ir::StepId a, ir::StepId b) { return plan.ordered(a, b); };
  EXPECT_LT(one.peak_bytes, 4 * 64);
  EXPECT_THROW(memory::check_streams(record, {}, one, ordered), InvariantError);
  EXPECT_NO_THROW(memory::check_streams(
      record, {}, memory::Planner(record, stages, {.clocks = &plan.clocks}).bind({}), ordered));
}

}  // namespace
}  // namespace heddle::scheduler
