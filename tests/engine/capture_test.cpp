// The capture partitioner on graphs that went through the passes and lowering.
#include "scheduler/capture.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/capture_traits.h"
#include "engine/compile_scope.h"
#include "heddle/heddle.h"
#include "ir/text.h"
#include "jit/library.h"
#include "scheduler/order.h"

namespace heddle::engine {
namespace {

using scheduler::CaptureOptions;
using scheduler::CapturePlan;
using scheduler::Partition;
using testing::ElementsAre;

/// ct::host(Tensor x) -> Tensor, which may be in no graph of a device, and
/// ct::route(Tensor x, Tensor(a!) counts) -> (Tensor, Tensor).
void register_ops() {
  static const auto same = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; };
  static const auto nothing = [](const KernelCall&) {};
  static const RegisteredOp host = register_op({.schema = "ct::host(Tensor x) -> Tensor",
                                                .shape = same,
                                                .cpu = nothing,
                                                .capturable = false});
  static const RegisteredOp route = register_op(
      {.schema = "ct::route(Tensor x, Tensor(a!) counts) -> (Tensor, Tensor)",
       .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0), call.tensor(0)}; },
       .cpu = nothing});
}

class Lowered {
 public:
  /// Each node a kernel of its own, unless the text says otherwise.
  explicit Lowered(const std::string& text, bool fuse = false) {
    register_ops();
    EngineOptions options;
    options.fuse = fuse;
    const OptimisedGraph graph = optimise(ir::parse(text), options);
    jit::LowerOptions lower;
    lower.rest = graph.rest;
    lower.units = graph.units;
    program = jit::lower(graph.graph, lower);
    const auto device = std::ranges::find_if(graph.graph.inputs(), [](const ir::Value& v) {
      return v.meta().device != ir::DeviceTag{};
    });
    traits = capture_traits(
        program, device == graph.graph.inputs().end() ? ir::DeviceTag{} : device->meta().device);
  }

  CapturePlan plan(CaptureOptions options = {}) const {
    options.sizes = {{base::Symbol{base::Symbol::Kind::Size, 0}, 8}};
    return plan_capture(program.record, traits, options);
  }
  std::string name(ir::StepId step) const {
    std::string text;
    for (const std::string& node : program.record.kernels[program.record.steps[step].kernel].nodes)
      text += (text.empty() ? "" : "+") + node;
    return text;
  }
  /// "[x1,y1] [c]!": split partitions have a mark.
  std::string text(const CapturePlan& plan) const {
    std::string result;
    for (const Partition& partition : plan.partitions) {
      result += result.empty() ? "[" : " [";
      for (const ir::StepId step : partition.steps)
        result += (step == partition.steps[0] ? "" : ",") + name(step);
      result += partition.capturable ? "]" : "]!";
    }
    return result;
  }
  std::vector<std::string> names(const std::vector<ir::BufferId>& buffers) const {
    std::vector<std::string> result;
    for (const ir::BufferId buffer : buffers)
      result.push_back(program.record.buffers[buffer].value);
    return result;
  }

  jit::Program program;
  std::vector<scheduler::StepTraits> traits;
};

CaptureOptions without_reorder() {
  CaptureOptions options;
  options.reorder = false;
  return options;
}

TEST(CaptureOfGraphs, A3_18_ReordersToTheFewestPartitions) {
  const Lowered lowered(
      "graph @main(%x: f32[8, 8], %y: f32[8, 8]) {\n"
      "  %x1 = exp(%x)\n"
      "  %y1 = sin(%y)\n"
      "  %c = ct::host(%y1)\n"
      "  %c1 = ct::host(%c)\n"
      "  %z = matmul(%x, %y)\n"
      "  %g = ct::host(%c1)\n"
      "  %a = add(%x1, %y1)\n"
      "  %b = add(%a, %z)\n"
      "  %o = add(%b, %g)\n"
      "  return %o\n"
      "}\n");
  EXPECT_EQ(lowered.text(lowered.plan(without_reorder())), "[x1,y1] [c,c1]! [z] [g]! [a,b,o]");
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[x1,y1,z,a,b] [c,c1,g]! [o]");
  EXPECT_EQ(plan.maps.size(), 2u);
  EXPECT_TRUE(plan.reordered);
  EXPECT_EQ(plan.partitions[1].reason, "holds an op that is not capturable");
}

TEST(CaptureOfGraphs, A3_19_TwoDeviceChainsAroundAHostChain) {
  const Lowered lowered(
      "graph @main(%h: f32[8], %x: f32[8]@cuda:0, %z: f32[8]@cuda:0) {\n"
      "  %a1 = exp(%x)\n"
      "  %h1 = sin(%h)\n"
      "  %h2 = cos(%h1)\n"
      "  %b1 = sin(%z)\n"
      "  %b2 = add(%b1, %a1)\n"
      "  return %h2, %b2\n"
      "}\n");
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[h1,h2]! [a1,b1,b2]");
  EXPECT_EQ(plan.partitions[0].reason, "runs on another device");
  EXPECT_EQ(plan.maps.size(), 1u);
  EXPECT_THAT(lowered.names(plan.partitions[1].inputs), ElementsAre("x", "z"));
}

TEST(CaptureOfGraphs, A3_20_UnsafeOpsSplit) {
  const Lowered lowered(
      "graph @main(%in: f32[8, 4]) {\n"
      "  %x = exp(%in)\n"
      "  %mv = ct::host(%x)\n"
      "  %z = sin(%mv)\n"
      "  %v = reduce_sum(%z) {axes = [1]}\n"
      "  %md = ct::host(%v)\n"
      "  %o = cos(%md)\n"
      "  return %o\n"
      "}\n");
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[x] [mv]! [z,v] [md]! [o]");
  EXPECT_EQ(plan.maps.size(), 3u);
}

TEST(CaptureOfGraphs, A3_22_SplitStepsMoveToTheEnds) {
  const Lowered lowered(
      "graph @main(%x: f32[8], %m: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %mask = ct::host(%m)\n"
      "  %b = mul(%a, %mask)\n"
      "  %log = ct::host(%b)\n"
      "  %c = sin(%b)\n"
      "  return %log, %c\n"
      "}\n");
  EXPECT_EQ(lowered.text(lowered.plan()), "[mask]! [a,b,c] [log]!");
}

TEST(CaptureOfGraphs, A3_24_AllCapturableStaysAsItIs) {
  const Lowered lowered(
      "graph @main(%x: f32[8]) {\n"
      "  %n1 = exp(%x)\n"
      "  %n2 = sin(%x)\n"
      "  %n3 = cos(%n2)\n"
      "  %n4 = tanh(%n1)\n"
      "  return %n3, %n4\n"
      "}\n");
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[n1,n2,n3,n4]");
  EXPECT_FALSE(plan.reordered);
  EXPECT_THAT(plan.order, ElementsAre(0, 1, 2, 3));
}

TEST(CaptureOfGraphs, A3_29_30_SmallOnesRunUncapturedAndMapsNameArguments) {
  const Lowered lowered(
      "graph @main(%x: f32[s0], %y: f32[s0]) {\n"
      "  %a = exp(%x)\n"
      "  %b = add(%a, %y)\n"
      "  %h = ct::host(%b)\n"
      "  %o = sin(%h)\n"
      "  return %o, %a\n"
      "}\n");
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[a,b] [h]! [o]");
  ASSERT_EQ(plan.maps.size(), 2u);
  EXPECT_EQ(plan.maps[0].partition, 0u);
  EXPECT_THAT(plan.maps[0].inputs, ElementsAre(std::optional(0u), std::optional(1u)));
  EXPECT_THAT(plan.maps[1].inputs, ElementsAre(std::nullopt));
  EXPECT_THAT(plan.maps[1].outputs, ElementsAre(std::optional(0u)));
  EXPECT_THAT(plan.partitions[0].symbols,
              ElementsAre(base::Symbol{base::Symbol::Kind::Size, 0}));  // S3-29
  CaptureOptions two;
  two.min_kernels = 2;
  const CapturePlan larger = lowered.plan(two);
  EXPECT_EQ(larger.partitions.size(), 3u);
  EXPECT_EQ(larger.maps.size(), 1u);
  EXPECT_TRUE(larger.partitions[2].capturable);
  EXPECT_FALSE(larger.partitions[2].captured);
  CaptureOptions dynamic;
  dynamic.split_dynamic = true;
  EXPECT_EQ(lowered.plan(dynamic).maps.size(), 0u);
}

TEST(CaptureOfGraphs, A3_31_OneMemberSplitsAFusedStepAndDisabledCaptureEverything) {
  const Lowered lowered(
      "graph @main(%x: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %b = sin(%a)\n"
      "  return %b\n"
      "}\n",
      true);
  CaptureOptions options;
  options.split_ops = {"sin"};
  EXPECT_EQ(lowered.text(lowered.plan(options)), "[a+b]!");
  options = {};
  options.enabled = false;
  const CapturePlan plan = lowered.plan(options);
  EXPECT_EQ(lowered.text(plan), "[a+b]!");
  EXPECT_TRUE(plan.maps.empty());
}

TEST(CaptureOfGraphs, ConditionsAndSizesOfValuesSplit) {
  const Lowered lowered(
      "graph @main(%p: bool[], %x: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %c = cond(%p, %a) {then = @then, else = @else}\n"
      "  %o = sin(%c)\n"
      "  return %o\n"
      "}\n"
      "graph @then(%x: f32[8]) {\n  %y = exp(%x)\n  return %y\n}\n"
      "graph @else(%x: f32[8]) {\n  %y = cos(%x)\n  return %y\n}\n");
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[a] [c]! [o]");
}

// A region's result feeds an op that writes; its results are taken in two partitions.
TEST(CaptureOfGraphs, AX_03_ARegionIntoAWritingOpWhoseResultsArePartedByASplit) {
  const Lowered lowered(
      "graph @main(%x: f32[8], %counts: f32[8]) {\n"
      "  %m = mul(%x, %x) @{compile = \"r\"}\n"
      "  %s = sin(%m) @{compile = \"r\"}\n"
      "  %u, %v, %new = ct::route(%s, %counts)\n"
      "  %a = exp(%u)\n"
      "  %h = ct::host(%a)\n"
      "  %b = add(%h, %v)\n"
      "  write_back %counts = %new\n"
      "  return %b\n"
      "}\n",
      true);
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[m+s,u,a] [h]! [b]");
  // Elements cross on their own: u has died, v is handed on, the container is nothing that could cross.
  EXPECT_THAT(lowered.names(plan.partitions[0].inputs), ElementsAre("x", "counts"));
  EXPECT_THAT(lowered.names(plan.partitions[0].outputs), testing::IsSupersetOf({"v", "a"}));
  EXPECT_THAT(lowered.names(plan.partitions[0].outputs), testing::Not(testing::Contains("u")));
  EXPECT_THAT(lowered.names(plan.partitions[1].inputs), ElementsAre("a"));
  EXPECT_THAT(lowered.names(plan.partitions[2].inputs), testing::UnorderedElementsAre("h", "v"));
  EXPECT_EQ(lowered.program.record.kernels[0].region, "region_0");
}

}  // namespace
}  // namespace heddle::engine
