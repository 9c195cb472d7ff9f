// The planner against a checker that knows lifetimes and not the algorithm.
#include "memory/planner.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include "heddle/error.h"

namespace heddle::memory {
namespace {

using ir::BufferId;
using ir::PlanBuffer;
using ir::ScheduleRecord;

BufferId add_buffer(ScheduleRecord& record, std::int64_t bytes,
                    PlanBuffer::Role role = PlanBuffer::Role::Intermediate) {
  PlanBuffer buffer;
  buffer.value = "b" + std::to_string(record.buffers.size());
  buffer.sizes = {bytes / 4};
  buffer.bytes = bytes;
  buffer.role = role;
  record.buffers.push_back(buffer);
  return static_cast<BufferId>(record.buffers.size() - 1);
}

void add_step(ScheduleRecord& record, std::vector<BufferId> reads, std::vector<BufferId> writes,
              bool may_reuse = false) {
  ir::PlanStep step;
  step.kernel = static_cast<std::uint32_t>(record.kernels.size());
  record.kernels.push_back({.name = "k" + std::to_string(step.kernel)});
  step.reads = std::move(reads);
  step.writes = std::move(writes);
  if (may_reuse) step.may_reuse.emplace_back(0, 0);
  record.steps.push_back(std::move(step));
}

std::vector<std::uint32_t> one_step_a_stage(const ScheduleRecord& record) {
  std::vector<std::uint32_t> stages(record.steps.size());
  for (std::uint32_t k = 0; k < stages.size(); ++k) stages[k] = k;
  return stages;
}

MemoryPlan plan_of(const ScheduleRecord& record, Planner::Options options = {}) {
  const auto stages = one_step_a_stage(record);
  const MemoryPlan plan = Planner(record, stages, options).bind({});
  check(record, stages, {}, plan);
  return plan;
}

/// in -> a -> b -> c -> out, 128 bytes each.
ScheduleRecord chain(bool may_reuse) {
  ScheduleRecord record;
  const BufferId in = add_buffer(record, 128, PlanBuffer::Role::Input);
  const BufferId a = add_buffer(record, 128);
  const BufferId b = add_buffer(record, 128);
  const BufferId c = add_buffer(record, 128);
  const BufferId out = add_buffer(record, 128, PlanBuffer::Role::Output);
  add_step(record, {in}, {a});
  add_step(record, {a}, {b}, may_reuse);
  add_step(record, {b}, {c}, may_reuse);
  add_step(record, {c}, {out}, may_reuse);
  return record;
}

TEST(Planner, AChainTakesTwoBuffers) {
  //  bytes | step 0  1  2  3
  //  0     |      a  a  c  c
  //  128   |         b  b
  const MemoryPlan plan = plan_of(chain(false));
  EXPECT_EQ(plan.peak_bytes, 256);
  EXPECT_EQ(plan.lower_bound_bytes, 256);
}

TEST(Planner, InPlaceTakesOne) {
  const MemoryPlan plan = plan_of(chain(true));
  EXPECT_EQ(plan.peak_bytes, 128);
  EXPECT_EQ(plan.offsets[1], plan.offsets[3]);
}

TEST(Planner, WithoutReuseEveryBufferHasItsOwn) {
  EXPECT_EQ(plan_of(chain(true), {.reuse = false}).peak_bytes, 384);
}

TEST(Planner, AnOperandThatIsReadLaterIsNotTaken) {
  ScheduleRecord record = chain(true);
  record.steps[3].reads.push_back(1);
  EXPECT_EQ(plan_of(record).peak_bytes, 256);
}

TEST(Planner, AnAliasKeepsItsRootAlive) {
  ScheduleRecord record = chain(false);
  record.buffers[2].alias_of = 1;
  record.steps[1].writes.clear();
  record.steps[1].reads = {0};
  const auto stages = one_step_a_stage(record);
  const Planner planner(record, stages, {});
  EXPECT_EQ(planner.roots()[2], 1u);
  EXPECT_EQ(planner.lifetimes()[1].last_step, 2u);
  EXPECT_EQ(planner.bind({}).offsets[2], planner.bind({}).offsets[1]);
}

TEST(Planner, AWeakEdgeDoesNotExtendALifetime) {
  ScheduleRecord record = chain(false);
  const MemoryPlan before = plan_of(record);
  record.steps[3].edges.push_back({0, true});
  EXPECT_EQ(plan_of(record).peak_bytes, before.peak_bytes);
}

TEST(Planner, StepsOfOneStageDoNotShareBytes) {
  ScheduleRecord record;
  const BufferId in = add_buffer(record, 64, PlanBuffer::Role::Input);
  const BufferId a = add_buffer(record, 64);
  const BufferId b = add_buffer(record, 64);
  const BufferId out = add_buffer(record, 64, PlanBuffer::Role::Output);
  add_step(record, {in}, {a});
  add_step(record, {in}, {b});
  add_step(record, {a, b}, {out});
  const std::vector<std::uint32_t> stages{0, 0, 1};
  const MemoryPlan plan = Planner(record, stages, {}).bind({});
  check(record, stages, {}, plan);
  EXPECT_NE(plan.offsets[a], plan.offsets[b]);
}

TEST(Planner, RandomRecords) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    ScheduleRecord record;
    add_buffer(record, 64, PlanBuffer::Role::Input);
    const int steps = 3 + static_cast<int>(random() % 20);
    for (int k = 0; k < steps; ++k) {
      std::vector<BufferId> reads;
      for (unsigned r = 0; r <= random() % 3; ++r)
        reads.push_back(static_cast<BufferId>(random() % record.buffers.size()));
      const bool same = random() % 2 == 0;
      const std::int64_t bytes = same ? record.buffers[reads[0]].bytes.constant()
                                      : 4 * static_cast<std::int64_t>(random() % 200);
      add_step(record, reads, {add_buffer(record, bytes)}, same);
    }
    const MemoryPlan plan = plan_of(record);
    EXPECT_GE(plan.peak_bytes, plan.lower_bound_bytes) << "seed " << seed;
    std::int64_t total = 0;
    for (const PlanBuffer& buffer : record.buffers) total += buffer.bytes.constant() + kAlignment;
    EXPECT_LE(plan.peak_bytes, total) << "seed " << seed;
  }
}

/// Walks the steps with the ranges that are in use; no two may meet. @return the end of the highest one.
std::int64_t walk(const ScheduleRecord& record, const Planner& planner, const MemoryPlan& plan) {
  std::vector<std::vector<BufferId>> begin(record.steps.size());
  std::vector<std::vector<BufferId>> end(record.steps.size());
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    if (plan.offsets[b] == kNotInArena || record.buffers[b].bytes.constant() == 0) continue;
    begin[planner.lifetimes()[b].first_step].push_back(b);
    end[planner.lifetimes()[b].last_step].push_back(b);
  }
  std::map<std::int64_t, std::int64_t> used;  // begin, end
  std::int64_t peak = 0;
  for (std::size_t step = 0; step < record.steps.size(); ++step) {
    for (const BufferId b : begin[step]) {
      const std::int64_t low = plan.offsets[b];
      const std::int64_t high = low + record.buffers[b].bytes.constant();
      const auto above = used.lower_bound(low);
      EXPECT_TRUE(above == used.end() || above->first >= high) << "b" << b;
      EXPECT_TRUE(above == used.begin() || std::prev(above)->second <= low) << "b" << b;
      used.emplace(low, high);
      peak = std::max(peak, high);
    }
    for (const BufferId b : end[step]) used.erase(plan.offsets[b]);
  }
  return peak;
}

// More buffers than are compared with one another: they are placed as time goes by.
TEST(Planner, ManyBuffersAreDisjointAndNearTheBound) {
  for (const std::size_t steps : {4000u, 20000u}) {
    std::mt19937 random(7);
    ScheduleRecord record;
    add_buffer(record, 64, PlanBuffer::Role::Input);
    for (std::size_t k = 0; k < steps; ++k) {
      std::vector<BufferId> reads;
      for (int r = 0; r < 2; ++r) {
        const std::size_t back = 1 + random() % std::min<std::size_t>(record.buffers.size(), 100);
        reads.push_back(static_cast<BufferId>(record.buffers.size() - back));
      }
      const BufferId made = add_buffer(record, 4 * static_cast<std::int64_t>(random() % 5000));
      add_step(record, reads, {made});
    }
    const auto stages = one_step_a_stage(record);
    const Planner planner(record, stages, {});
    const MemoryPlan plan = planner.bind({});
    EXPECT_LE(walk(record, planner, plan), plan.peak_bytes);
    EXPECT_GE(plan.peak_bytes, plan.lower_bound_bytes);
    EXPECT_LE(static_cast<double>(plan.peak_bytes),
              1.2 * static_cast<double>(plan.lower_bound_bytes))
        << steps;
  }
}

/// `lanes` streams side by side, which wait for one another now and then, as clocks.
ir::StepClocks clocks_of(const ScheduleRecord& record, std::uint32_t lanes, std::mt19937& random) {
  ir::StepClocks clocks;
  clocks.lanes = lanes;
  std::vector<std::vector<std::uint32_t>> now(lanes, std::vector<std::uint32_t>(lanes, 0));
  std::vector<std::vector<std::uint32_t>> after;
  for (std::size_t k = 0; k < record.steps.size(); ++k) {
    const auto lane = static_cast<std::uint32_t>(random() % lanes);
    std::vector<std::uint32_t>& clock = now[lane];
    for (const ir::PlanEdge& edge : record.steps[k].edges)
      for (std::uint32_t l = 0; l < lanes; ++l) clock[l] = std::max(clock[l], after[edge.from][l]);
    clocks.lane_of.push_back(lane);
    clocks.place_of.push_back(clock[lane]);
    clocks.counts.insert(clocks.counts.end(), clock.begin(), clock.end());
    ++clock[lane];
    after.push_back(clock);
  }
  return clocks;
}

// More buffers than are compared, on streams: whoever takes bytes begins after all that used them are done, as the clocks
// say; and little more memory is taken than where each is compared with all.
TEST(Planner, ManyBuffersOnStreamsAreUsedInTurn) {
  for (const auto& [steps, lanes, most] :
       {std::tuple(4000u, 4u, 1.0), std::tuple(4200u, 4u, 1.5), std::tuple(20000u, 3u, 1.5)}) {
    SCOPED_TRACE(steps);
    std::mt19937 random(11);
    ScheduleRecord record;
    std::vector<ir::StepId> maker{ir::kNone};
    add_buffer(record, 64, PlanBuffer::Role::Input);
    for (std::size_t k = 0; k < steps; ++k) {
      std::vector<BufferId> reads;
      for (int r = 0; r < 2; ++r) {
        const std::size_t back = 1 + random() % std::min<std::size_t>(record.buffers.size(), 60);
        reads.push_back(static_cast<BufferId>(record.buffers.size() - back));
      }
      add_step(record, reads, {add_buffer(record, 64 * (1 + random() % 50))});
      for (const BufferId read : reads)
        if (maker[read] != ir::kNone) record.steps.back().edges.push_back({maker[read], false});
      maker.push_back(static_cast<ir::StepId>(k));
    }
    const ir::StepClocks clocks = clocks_of(record, lanes, random);
    const Planner planner(record, one_step_a_stage(record), {.clocks = &clocks});
    const MemoryPlan plan = planner.bind({});
    std::map<std::int64_t, BufferId> users;  // by 64 bytes: who used them last
    std::size_t taken_again = 0;
    for (ir::StepId step = 0; step < record.steps.size(); ++step) {
      const BufferId made = record.steps[step].writes[0];
      const std::int64_t begin = plan.offsets[made];
      for (std::int64_t at = begin; at < begin + record.buffers[made].bytes.constant(); at += 64) {
        const auto [user, fresh] = users.try_emplace(at, made);
        if (fresh) continue;
        ++taken_again;
        const BufferId old = std::exchange(user->second, made);
        ASSERT_TRUE(clocks.ordered(maker[old], step)) << "b" << old << " and b" << made;
        const std::uint32_t last = planner.lifetimes()[old].last_step;
        ASSERT_TRUE(clocks.ordered(last, step)) << "b" << old << " is read at " << last;
      }
    }
    EXPECT_GT(taken_again, steps);
    EXPECT_LE(static_cast<double>(plan.peak_bytes),
              most * 4 * static_cast<double>(plan.lower_bound_bytes));
  }
}

TEST(Planner, TheCheckerFindsAFreeOneStepEarly) {
  const ScheduleRecord record = chain(false);
  MemoryPlan plan = plan_of(record);
  plan.offsets[2] = plan.offsets[1];
  EXPECT_THROW(check(record, one_step_a_stage(record), {}, plan), InvariantError);
}

/// Buffers of sizes that follow s0 in steps, so that most sizes change no bytes.
TEST(Planner, SizesThatChangeNoBytesHaveThePlanOfThoseBefore) {
  ScheduleRecord record;
  const base::SymExpr s0 = base::SymExpr::size(0);
  std::vector<BufferId> buffers{add_buffer(record, 128, PlanBuffer::Role::Input)};
  for (int k = 0; k < 6; ++k) {
    buffers.push_back(add_buffer(record, 128));
    record.buffers.back().bytes = (1 + base::floordiv(s0, 64 + 16 * k)) * (256 - 32 * k);
    add_step(record, {buffers[static_cast<std::size_t>(k)]}, {buffers.back()});
  }
  const auto stages = one_step_a_stage(record);
  const Planner planner(record, stages, {});
  const auto expect_fresh = [&](std::int64_t size) {
    const base::SymbolValues sizes{{s0.symbol(), size}};
    const MemoryPlan got = planner.bind(sizes);
    const MemoryPlan want = Planner(record, stages, {}).bind(sizes);
    check(record, stages, sizes, got);
    EXPECT_EQ(got.offsets, want.offsets) << size;
    EXPECT_EQ(got.peak_bytes, want.peak_bytes) << size;
    EXPECT_EQ(got.lower_bound_bytes, want.lower_bound_bytes) << size;
  };
  for (std::int64_t size = 0; size < 600; ++size) expect_fresh(size);
  for (std::int64_t size = 600; size > 0; size -= 7) expect_fresh(size);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t size = t; size < 400; size += 3) planner.bind({{s0.symbol(), size}});
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace heddle::memory
