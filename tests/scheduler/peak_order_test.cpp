// Orders by peak memory, on records made by hand.
#include "scheduler/peak_order.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <string>

#include "scheduler/order.h"

namespace heddle::scheduler {
namespace {

using ir::BufferId;
using ir::PlanBuffer;
using ir::StepId;

/// A record of steps that each write one buffer.
class Steps {
 public:
  /// Step `name` writes `bytes` and reads what the named steps wrote.
  void add(const std::string& name, std::int64_t bytes, std::vector<std::string> reads = {},
           bool output = false) {
    const auto step = static_cast<StepId>(record.steps.size());
    PlanBuffer buffer;
    buffer.value = name;
    buffer.bytes = bytes;
    buffer.role = output ? PlanBuffer::Role::Output : PlanBuffer::Role::Intermediate;
    record.buffers.push_back(buffer);
    record.kernels.push_back({.name = name});
    ir::PlanStep made;
    made.kernel = step;
    made.writes = {step};
    for (const std::string& read : reads) {
      made.reads.push_back(id(read));
      made.edges.push_back({id(read), false});
    }
    record.steps.push_back(made);
  }
  void order(const std::string& first, const std::string& then) {
    record.steps[id(then)].edges.push_back({id(first), true});
  }
  std::string text(const std::vector<StepId>& order) const {
    std::string names;
    for (const StepId step : order) names += (names.empty() ? "" : ",") + record.kernels[step].name;
    return names;
  }
  std::int64_t peak(const std::vector<StepId>& order) const {
    return StepMemory(record, {}).peak(order);
  }
  Schedule scheduled() const {
    ScheduleOptions options;
    options.parallel_steps = false;
    return schedule(record, options);
  }

  ir::ScheduleRecord record;

 private:
  StepId id(const std::string& name) const {
    for (StepId k = 0; k < record.kernels.size(); ++k)
      if (record.kernels[k].name == name) return k;
    ADD_FAILURE() << name;
    return 0;
  }
};

// A donated input is there from the first step on and goes after its last reader, so that this comes first; one
// that is not donated counts nowhere.
TEST(PeakOrder, DonatedInputsAreLiveFromTheStart) {
  for (const bool donated : {true, false}) {
    Steps s;
    s.add("A", 50);
    s.add("B", 10);
    s.add("C", 5, {"A"});
    s.add("J", 1, {"B", "C"}, true);
    PlanBuffer x;
    x.value = "x";
    x.bytes = 100;
    x.role = PlanBuffer::Role::Input;
    x.donated = donated;
    s.record.buffers.push_back(x);
    s.record.steps[1].reads = {4};  // B reads it
    const std::vector<StepId> given{0, 1, 2, 3};
    EXPECT_EQ(StepMemory(s.record, {}).live(given),
              donated ? (std::vector<std::int64_t>{150, 160, 65, 16})
                      : (std::vector<std::int64_t>{50, 60, 65, 16}));
    const Schedule chosen = s.scheduled();
    EXPECT_EQ(s.text(chosen.given), donated ? "B,A,C,J" : "A,B,C,J");
    EXPECT_EQ(chosen.peaks[0].second, donated ? 160 : 65);
    EXPECT_EQ(chosen.peaks[1], std::pair(Method::Lpmf, std::int64_t{donated ? 110 : 65}));
  }
}

// A3-13
TEST(PeakOrder, SmallResultsBeforeTheNextLargeOne) {
  Steps s;
  s.add("A", 100);
  s.add("B", 100);
  s.add("sa", 1, {"A"});
  s.add("sb", 1, {"B"});
  s.add("J", 1, {"sa", "sb"}, true);
  const Schedule chosen = s.scheduled();
  EXPECT_EQ(s.text(chosen.given), "A,sa,B,sb,J");
  EXPECT_EQ(chosen.method, Method::Lpmf);
  EXPECT_EQ(chosen.peaks[0], std::pair(Method::Given, std::int64_t{201}));
  EXPECT_EQ(chosen.peaks[1], std::pair(Method::Lpmf, std::int64_t{102}));
}

// A3-14
TEST(PeakOrder, BranchesOneAfterAnother) {
  Steps s;
  s.add("r", 8);
  for (const char* p : {"p1", "p2", "p3"}) s.add(p, 64, {"r"});
  for (const char* k : {"1", "2", "3"}) s.add(std::string("q") + k, 4, {std::string("p") + k});
  s.add("s", 4, {"q1", "q2", "q3"}, true);
  const Schedule chosen = s.scheduled();
  EXPECT_EQ(s.text(chosen.given), "r,p1,q1,p2,q2,p3,q3,s");
  EXPECT_EQ(chosen.peaks[0].second, 200);
  EXPECT_EQ(chosen.peaks[1].second, 80);
}

// A3-15
TEST(PeakOrder, TiesKeepTheGivenOrder) {
  Steps s;
  s.add("A", 10);
  s.add("B", 10, {"A"});
  s.add("C", 10, {"B"});
  const Schedule chosen = s.scheduled();
  EXPECT_EQ(chosen.method, Method::Given);
  EXPECT_EQ(s.text(chosen.given), "A,B,C");
  ASSERT_EQ(chosen.peaks.size(), 4u);
  for (const auto& [method, peak] : chosen.peaks) EXPECT_EQ(peak, 20) << name_of(method);
}

// A3-11: each result of a step with two is freed on its own.
TEST(PeakOrder, LiveBytesOfTwoResults) {
  Steps s;
  s.add("op", 10);
  s.record.buffers.push_back({.value = "v", .bytes = 20});
  s.record.steps[0].writes.push_back(1);
  s.record.kernels.push_back({.name = "use"});
  s.record.buffers.push_back({.value = "use", .bytes = 5});
  s.record.steps.push_back({.kernel = 1, .reads = {0}, .writes = {2}, .edges = {{0, false}}});
  s.record.kernels.push_back({.name = "use2"});
  s.record.buffers.push_back({.value = "use2", .bytes = 5});
  s.record.steps.push_back(
      {.kernel = 2, .reads = {1, 2}, .writes = {3}, .edges = {{0, false}, {1, false}}});
  const StepMemory memory(s.record, {});
  EXPECT_EQ(memory.live(std::vector<StepId>{0, 1, 2}), (std::vector<std::int64_t>{30, 35, 30}));
  EXPECT_EQ(memory.peak(std::vector<StepId>{0, 1, 2}), 35);
}

// A4-07: an order edge keeps no bytes alive.
TEST(PeakOrder, OrderEdgesKeepNothingAlive) {
  Steps s;
  s.add("m0", 64);
  s.add("m1", 64, {"m0"});
  s.add("m2", 64, {"m1"});
  s.add("m3", 64, {"m2"});
  s.order("m0", "m3");
  EXPECT_EQ(s.peak({0, 1, 2, 3}), 128);
}

// A4-12: edges of both kinds hold in every order; and the peak of the choice is never above the given one.
TEST(PeakOrder, EdgesHoldInRandomGraphs) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    Steps s;
    const std::uint32_t count = 2 + below(20);
    for (std::uint32_t k = 0; k < count; ++k) {
      std::vector<std::string> reads;
      for (std::uint32_t j = 0; j < k; ++j)
        if (below(4) == 0) reads.push_back("n" + std::to_string(j));
      s.add("n" + std::to_string(k), 1 + below(100), reads, below(8) == 0);
      if (k > 0 && below(3) == 0) s.order("n" + std::to_string(below(k)), "n" + std::to_string(k));
    }
    const StepMemory memory(s.record, {});
    for (const auto& order : {lpmf_order(memory), bfs_order(memory), dfs_order(memory)}) {
      ASSERT_EQ(order.size(), count);
      std::vector<StepId> place(count, ir::kNone);
      for (StepId k = 0; k < count; ++k) place[order[k]] = k;
      for (StepId step = 0; step < count; ++step)
        for (const ir::PlanEdge& edge : s.record.steps[step].edges)
          ASSERT_LT(place[edge.from], place[step]) << "seed " << seed;
    }
    const Schedule chosen = s.scheduled();
    check(chosen);
    std::vector<StepId> given(count);
    for (StepId k = 0; k < count; ++k) given[k] = k;
    EXPECT_LE(memory.peak(chosen.given), memory.peak(given)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace heddle::scheduler
