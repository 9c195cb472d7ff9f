// The capture partitioner on records made by hand.
#include "scheduler/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "scheduler/step_memory.h"

namespace heddle::scheduler {
namespace {

using ir::PlanBuffer;
using ir::StepId;
using testing::ElementsAre;

/// CaptureSteps by name, each writing one buffer of its name.
class CaptureSteps {
 public:
  void input(const std::string& name) {
    ids_[name] = add_buffer(name, PlanBuffer::Role::Input, inputs_++);
  }
  /// Adds a step; a trait other than the default makes it a split step.
  StepTraits& add(const std::string& name, const std::vector<std::string>& reads,
                  bool output = false) {
    const auto step = static_cast<StepId>(record.steps.size());
    ir::PlanStep made;
    made.kernel = step;
    for (const std::string& read : reads) {
      made.reads.push_back(ids_.at(read));
      if (writer_.contains(read)) made.edges.push_back({writer_.at(read), false});
    }
    ids_[name] =
        add_buffer(name, output ? PlanBuffer::Role::Output : PlanBuffer::Role::Intermediate,
                   output ? outputs_++ : ir::kNone);
    made.writes = {ids_[name]};
    writer_[name] = step;
    record.steps.push_back(made);
    record.kernels.push_back({.name = name});
    traits.push_back({.ops = {name}});
    return traits.back();
  }
  CapturePlan plan(const CaptureOptions& options = {}) const {
    return plan_capture(record, traits, options);
  }
  /// "[x1,y1] [c]!": split partitions have a mark.
  std::string text(const CapturePlan& plan) const {
    std::string result;
    for (const Partition& partition : plan.partitions) {
      result += result.empty() ? "[" : " [";
      for (const StepId step : partition.steps)
        result += (step == partition.steps[0] ? "" : ",") + record.kernels[step].name;
      result += partition.capturable ? "]" : "]!";
    }
    return result;
  }
  std::vector<std::string> names(const std::vector<ir::BufferId>& buffers) const {
    std::vector<std::string> result;
    for (const ir::BufferId buffer : buffers) result.push_back(record.buffers[buffer].value);
    return result;
  }

  ir::ScheduleRecord record;
  std::vector<StepTraits> traits;

 private:
  ir::BufferId add_buffer(const std::string& name, PlanBuffer::Role role, std::uint32_t position) {
    PlanBuffer buffer;
    buffer.value = name;
    buffer.bytes = 64;
    buffer.role = role;
    buffer.position = position;
    record.buffers.push_back(buffer);
    return static_cast<ir::BufferId>(record.buffers.size() - 1);
  }
  std::map<std::string, ir::BufferId> ids_;
  std::map<std::string, StepId> writer_;
  std::uint32_t inputs_ = 0, outputs_ = 0;
};

CaptureOptions without_reorder() {
  CaptureOptions options;
  options.reorder = false;
  return options;
}

// A3-18
TEST(Capture, ReordersToTheFewestPartitions) {
  CaptureSteps s;
  s.input("x");
  s.input("y");
  s.add("x1", {"x"});
  s.add("y1", {"y"});
  s.add("c", {"y1"}).crosses_devices = true;
  s.add("c1", {"c"}).on_device = false;
  s.add("z", {"x", "y"});
  s.add("g", {"c1"}).crosses_devices = true;
  s.add("o", {"x1", "y1", "z", "g"}, true);
  EXPECT_EQ(s.text(s.plan(without_reorder())), "[x1,y1] [c,c1]! [z] [g]! [o]");
  const CapturePlan plan = s.plan();
  EXPECT_EQ(s.text(plan), "[x1,y1,z] [c,c1,g]! [o]");
  EXPECT_EQ(plan.maps.size(), 2u);
  EXPECT_EQ(plan.partitions[1].reason, "copies between devices");
}

// A3-19
TEST(Capture, TwoDeviceChainsAroundAHostChain) {
  CaptureSteps s;
  s.input("h");
  s.input("x");
  s.input("z");
  s.add("a1", {"x"});
  s.add("h1", {"h"}).on_device = false;
  s.add("h2", {"h1"}, true).on_device = false;
  s.add("b1", {"z"});
  s.add("b2", {"b1", "a1"}, true);
  const CapturePlan plan = s.plan();
  EXPECT_EQ(s.text(plan), "[h1,h2]! [a1,b1,b2]");
  EXPECT_EQ(plan.maps.size(), 1u);
  EXPECT_THAT(s.names(plan.partitions[1].inputs), ElementsAre("x", "z"));
}

// A3-20
TEST(Capture, UnsafeOpsSplit) {
  CaptureSteps s;
  s.input("in");
  s.add("x", {"in"});
  s.add("mv", {"x"}).capture_unsafe = true;
  s.add("z", {"mv"});
  s.add("tr", {"z"});
  s.add("v", {"tr"});
  s.add("md", {"v"}).capture_unsafe = true;
  s.add("o", {"md"}, true);
  const CapturePlan plan = s.plan();
  EXPECT_EQ(s.text(plan), "[x] [mv]! [z,tr,v] [md]! [o]");
  EXPECT_EQ(plan.maps.size(), 3u);
  EXPECT_EQ(plan.partitions[1].reason, "holds an op that is not capturable");
}

// A3-22
TEST(Capture, SplitStepsMoveToTheEnds) {
  CaptureSteps s;
  s.input("in");
  s.add("a", {"in"});
  s.add("mask", {}).on_device = false;
  s.add("b", {"a", "mask"});
  s.add("log", {"b"}, true).on_device = false;
  s.add("c", {"b"}, true);
  EXPECT_EQ(s.text(s.plan()), "[mask]! [a,b,c] [log]!");
}

// A3-24
TEST(Capture, AllCapturableStaysAsItIs) {
  CaptureSteps s;
  s.input("in");
  s.add("n1", {"in"});
  s.add("n2", {"in"});
  s.add("n3", {"n2"}, true);
  s.add("nN", {"n1"}, true);
  const CapturePlan plan = s.plan();
  EXPECT_FALSE(plan.reordered);
  EXPECT_EQ(s.text(plan), "[n1,n2,n3,nN]");
}

// A3-29
TEST(Capture, SmallPartitionsRunUncaptured) {
  CaptureSteps s;
  s.input("in");
  s.add("a", {"in"});
  s.add("u", {"a"}).on_device = false;
  s.add("b", {"u"});
  s.add("c", {"b"}, true);
  CaptureOptions options;
  options.min_kernels = 2;
  const CapturePlan plan = s.plan(options);
  EXPECT_EQ(plan.partitions.size(), 3u);
  EXPECT_FALSE(plan.partitions[0].captured);
  EXPECT_TRUE(plan.partitions[0].capturable);
  ASSERT_EQ(plan.maps.size(), 1u);
  EXPECT_EQ(plan.maps[0].partition, 2u);
}

// A3-30
TEST(Capture, IndexMapsNameArgumentsOrNone) {
  CaptureSteps s;
  s.input("in");
  s.input("w");
  s.add("a", {"in"});
  s.add("u", {"a"}).on_device = false;
  s.add("b", {"u", "w"}, true);
  const CapturePlan plan = s.plan();
  ASSERT_EQ(plan.maps.size(), 2u);
  EXPECT_THAT(plan.maps[0].inputs, ElementsAre(std::optional<std::uint32_t>(0)));
  EXPECT_THAT(s.names(plan.partitions[2].inputs), ElementsAre("w", "u"));
  EXPECT_THAT(plan.maps[1].inputs, ElementsAre(std::optional<std::uint32_t>(1), std::nullopt));
  EXPECT_EQ(plan.maps[1].outputs[0], std::nullopt);  // w, given back
  EXPECT_EQ(plan.maps[1].outputs[1], std::optional<std::uint32_t>(0));
}

// A3-31
TEST(Capture, OneUnsafeMemberSplitsTheStep) {
  CaptureSteps s;
  s.input("in");
  s.add("fused", {"in"}).ops = {"add", "mul", "unsafe"};
  s.add("b", {"fused"}, true);
  CaptureOptions options;
  options.split_ops = {"unsafe"};
  const CapturePlan plan = s.plan(options);
  EXPECT_EQ(s.text(plan), "[fused]! [b]");
  EXPECT_EQ(plan.partitions[0].reason, "unsafe is listed by the user");
  options.enabled = false;
  options.split_ops.clear();
  const CapturePlan off = s.plan(options);
  EXPECT_EQ(s.text(off), "[fused,b]!");
  EXPECT_EQ(off.partitions[0].reason, "capture is off");
  EXPECT_TRUE(off.maps.empty());
}

// S3-26: what is freed inside is no output; what crosses is, and comes in where it is read.
TEST(Capture, Signatures) {
  CaptureSteps s;
  s.input("in");
  s.add("a", {"in"});
  s.add("b", {"a"});
  s.add("u", {"b"}).on_device = false;
  s.add("c", {"a", "u"}, true);
  const CapturePlan plan = s.plan();
  ASSERT_EQ(s.text(plan), "[a,b] [u]! [c]");
  EXPECT_THAT(s.names(plan.partitions[0].inputs), ElementsAre("in"));
  EXPECT_THAT(s.names(plan.partitions[0].outputs), ElementsAre("in", "a", "b"));
  EXPECT_THAT(s.names(plan.partitions[1].inputs), ElementsAre("b"));
  EXPECT_THAT(s.names(plan.partitions[1].outputs), ElementsAre("u"));
  EXPECT_THAT(s.names(plan.partitions[2].inputs), ElementsAre("a", "u"));
  EXPECT_THAT(s.names(plan.partitions[2].outputs), ElementsAre("c"));
}

// S3-23: a reorder that would cost a tenth more memory is not taken.
TEST(Capture, ReordersAreBoundedByMemory) {
  CaptureSteps s;
  s.input("in");
  std::vector<std::string> results;
  for (int k = 0; k < 4; ++k) {
    const std::string n = std::to_string(k);
    s.add("big" + n, {"in"});
    s.add("host" + n, {"big" + n}).on_device = false;
    s.record.buffers.back().bytes = 1;
    results.push_back("host" + n);
  }
  s.add("o", results, true);
  s.record.buffers.back().bytes = 1;
  const CapturePlan plan = s.plan();
  EXPECT_FALSE(plan.reordered);
  EXPECT_EQ(plan.partitions.size(), 9u);
}

// S3-22: draining begins with what is split; where that only parts more, the order stays.
TEST(Capture, ReordersMakeNoMorePartitions) {
  CaptureSteps s;
  s.input("in");
  s.add("a", {"in"});
  s.add("mask", {"in"}).on_device = false;
  s.add("h", {"a", "mask"}).on_device = false;
  s.add("c", {"h"}, true);
  const CapturePlan plan = s.plan();
  EXPECT_FALSE(plan.reordered);
  EXPECT_EQ(s.text(plan), "[a] [mask,h]! [c]");
}

// S3-22: as many partitions, but one graph fewer.
TEST(Capture, ReordersForFewerGraphs) {
  CaptureSteps s;
  s.input("in");
  s.add("a", {"in"});
  s.add("h", {"in"}).on_device = false;
  s.add("g", {"a"}, true).on_device = false;
  s.add("c", {"h"}, true);
  const CapturePlan plan = s.plan();
  EXPECT_TRUE(plan.reordered);
  EXPECT_EQ(s.text(plan), "[h]! [a,c] [g]!");
}

// S3-24 within the bound of S3-23: large values that wait for nothing are not all made at the start; what nobody
// waits for goes last all the same.
TEST(Capture, MovesAreBoundedByMemory) {
  CaptureSteps s;
  s.input("in");
  std::vector<std::string> results;
  for (int k = 0; k < 4; ++k) {
    const std::string n = std::to_string(k);
    s.add("host" + n, {"in"}).on_device = false;
    s.add("sum" + n, {"host" + n});
    s.record.buffers.back().bytes = 1;
    results.push_back("sum" + n);
  }
  s.add("log", {"sum3"}, true).on_device = false;
  s.record.buffers.back().bytes = 1;
  s.add("o", results, true);
  s.record.buffers.back().bytes = 1;
  EXPECT_EQ(s.text(s.plan()),
            "[host0]! [sum0] [host1]! [sum1] [host2]! [sum2] [host3]! [sum3,o] [log]!");
}

// A4-12: order edges hold after the reorder and the moves; there are no more graphs, and less than a tenth more memory.
TEST(Capture, EdgesHoldInRandomGraphs) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    CaptureSteps s;
    s.input("in");
    const std::uint32_t count = 2 + below(12);
    for (std::uint32_t k = 0; k < count; ++k) {
      std::vector<std::string> reads{"in"};
      for (std::uint32_t j = 0; j < k; ++j)
        if (below(4) == 0) reads.push_back("n" + std::to_string(j));
      s.add("n" + std::to_string(k), reads, k + 1 == count).on_device = below(3) != 0;
      s.record.buffers.back().bytes = static_cast<std::int64_t>(1 + below(100));
      if (k > 0 && below(3) == 0) s.record.steps[k].edges.push_back({below(k), true});
    }
    const CapturePlan plan = s.plan();
    std::vector<StepId> place(count, ir::kNone);
    for (StepId k = 0; k < count; ++k) place[plan.order[k]] = k;
    for (StepId step = 0; step < count; ++step)
      for (const ir::PlanEdge& edge : s.record.steps[step].edges)
        ASSERT_LT(place[edge.from], place[step]) << "seed " << seed;
    for (std::size_t k = 1; k < plan.partitions.size(); ++k)
      EXPECT_NE(plan.partitions[k - 1].capturable, plan.partitions[k].capturable);
    const CapturePlan given = s.plan(without_reorder());
    EXPECT_LE(plan.maps.size(), given.maps.size()) << "seed " << seed;
    const StepMemory memory(s.record, {});
    EXPECT_LT(memory.peak(plan.order) * 10, memory.peak(given.order) * 11) << "seed " << seed;
  }
}

}  // namespace
}  // namespace heddle::scheduler
