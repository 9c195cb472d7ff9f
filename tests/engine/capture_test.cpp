// The capture partitioner on graphs that went through the passes and lowering.
#include "scheduler/capture.h"

#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "engine/capture_traits.h"
#include "engine/compile_scope.h"
#include "engine/context.h"
#include "heddle/heddle.h"
#include "ir/evaluate.h"
#include "ir/text.h"
#include "jit/library.h"
#include "scheduler/order.h"

namespace heddle::engine {
namespace {

using scheduler::CaptureOptions;
using scheduler::CapturePlan;
using scheduler::Partition;
using ::testing::ElementsAre;

/// ct::host(Tensor x) -> Tensor, x + 1, which may be in no graph of a device, and
/// ct::route(Tensor x, Tensor(a!) counts) -> (Tensor, Tensor), 2x and 3x; counts += x.
void register_ops() {
  static const auto same = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; };
  static const auto add_one = [](const KernelCall& call) {
    for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
      call.results[0].as<float>()[k] = call.tensor(0).as<float>()[k] + 1;
  };
  static const auto split = [](const KernelCall& call) {
    for (std::int64_t k = 0; k < call.tensor(0).count(); ++k) {
      const float x = call.tensor(0).as<float>()[k];
      call.results[0].as<float>()[k] = 2 * x;
      call.results[1].as<float>()[k] = 3 * x;
      call.tensor(1).as<float>()[k] += x;
    }
  };
  static const RegisteredOp host = register_op({.schema = "ct::host(Tensor x) -> Tensor",
                                                .shape = same,
                                                .cpu = add_one,
                                                .capturable = false});
  static const RegisteredOp route = register_op(
      {.schema = "ct::route(Tensor x, Tensor(a!) counts) -> (Tensor, Tensor)",
       .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0), call.tensor(0)}; },
       .cpu = split});
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

/// Lowers, and puts the steps in the order that capture wants.
thread_local CaptureOptions wanted_options;
jit::Program lower_for_capture(const ir::Graph& graph, const jit::LowerOptions& options) {
  jit::Program program = jit::lower(graph, options);
  const CapturePlan plan =
      plan_capture(program.record, capture_traits(program, {}), wanted_options);
  std::vector<ir::StepId> place(plan.order.size());
  for (ir::StepId k = 0; k < plan.order.size(); ++k) place[plan.order[k]] = k;
  std::vector<ir::PlanStep> steps;
  std::vector<jit::Launch> launches;
  for (const ir::StepId old : plan.order) {
    steps.push_back(program.record.steps[old]);
    for (ir::PlanEdge& edge : steps.back().edges) edge.from = place[edge.from];
    launches.push_back(program.launches[old]);
  }
  program.record.steps = std::move(steps);
  program.launches = std::move(launches);
  return program;
}

/// The engine's own plan in the order of capture, run partition by partition, each as the function that its
/// signature says: before it runs, all memory but its inputs is overwritten; after it, only its outputs are kept.
class Partitioned {
 public:
  Partitioned(const std::string& text, bool fuse, CaptureOptions options)
      : graph_(ir::parse(text)) {
    options.sizes = {{base::Symbol{base::Symbol::Kind::Size, 0}, 8}};
    wanted_options = options;
    BuildOptions build;
    build.engine.threads = 1;
    build.engine.fuse = fuse;
    build.engine.order = StepOrder::Given;
    build.engine.check_plans = true;
    build.compiler = &jit::CompileService::shared();
    build.lower = lower_for_capture;
    executable_ = std::make_shared<Executable>(graph_, Guards{}, build);
    options.reorder = false;
    plan_ = plan_capture(record(), capture_traits(executable_->program(), {}), options);
  }

  /// The kernels launched, by partition: "exp,sin | ct::host".
  std::string launched() const { return launched_; }

  std::vector<ir::Literal> run(const std::vector<ir::Literal>& given) {
    const std::unique_ptr<BoundPlan> plan = executable_->bind(ir::bind_sizes(graph_, given), 1);
    std::vector<ir::Literal> arguments, results;
    std::vector<Tensor> inputs, outputs;
    for (const ir::Literal& literal : given) {
      arguments.push_back(literal.clone());
      inputs.push_back(wrapped(arguments.back()));
    }
    for (std::size_t k = 0; k < plan->output_sizes.size(); ++k) {
      results.emplace_back(graph_.outputs()[k].meta().dtype, plan->output_sizes[k]);
      outputs.push_back(wrapped(results.back()));
    }
    ExecutionContext context;
    context.use(*plan);
    context.set_io(*plan, inputs, outputs);
    const auto memory = [&](ir::BufferId b) -> char* {
      const ir::PlanBuffer& buffer = record().buffers[b];
      if (buffer.role == ir::PlanBuffer::Role::Input)
        return static_cast<char*>(inputs[buffer.position].data());
      if (buffer.role == ir::PlanBuffer::Role::Output)
        return static_cast<char*>(outputs[buffer.position].data());
      const bool placed = plan->memory.offsets[b] != memory::kNotInArena;
      return placed ? context.frame().at(plan->memory.offsets[b]) : nullptr;
    };
    const auto bytes = [&](ir::BufferId b) {
      return static_cast<std::size_t>(record().buffers[b].bytes.evaluate(plan->sizes));
    };
    const auto roots = executable_->planner().roots();
    std::map<ir::BufferId, std::string> kept;
    for (ir::BufferId b = 0; b < roots.size(); ++b)
      if (record().buffers[b].role == ir::PlanBuffer::Role::Input)
        kept[b].assign(memory(b), bytes(b));
    for (const Partition& partition : plan_.partitions) {
      for (ir::BufferId b = 0; b < roots.size(); ++b)
        if (roots[b] == b && memory(b) != nullptr) std::memset(memory(b), 0xff, bytes(b));
      for (const ir::BufferId b : partition.inputs)
        std::memcpy(memory(roots[b]), kept.at(roots[b]).data(), bytes(roots[b]));
      launched_ += launched_.empty() ? "" : " | ";
      for (const ir::StepId step : partition.steps) {
        const scheduler::BoundStage alone{step, 1};
        EXPECT_EQ(executor_.run(context.steps(), {&alone, 1}), 0);
        launched_ += (step == partition.steps[0] ? "" : ",") +
                     record().kernels[record().steps[step].kernel].name;
      }
      for (const ir::BufferId b : partition.outputs)
        kept[roots[b]].assign(memory(roots[b]), bytes(roots[b]));
    }
    for (const auto& [b, data] : kept) std::memcpy(memory(b), data.data(), data.size());
    for (const ir::Graph::WriteBack& write : graph_.write_backs())
      for (std::size_t k = 0; k < arguments.size(); ++k)
        if (graph_.inputs()[k] == write.target) results.push_back(arguments[k]);
    return results;
  }

  const ir::Graph& graph() const { return graph_; }

 private:
  static Tensor wrapped(const ir::Literal& literal) {
    return Tensor::wrap(const_cast<void*>(literal.data()), literal.dtype(), literal.sizes());
  }
  const ir::ScheduleRecord& record() const { return executable_->schedule().record; }

  ir::Graph graph_;
  std::shared_ptr<Executable> executable_;
  CapturePlan plan_;
  scheduler::Executor executor_{1};
  std::string launched_;
};

/// Executes the graph by partitions; what it gives must be what the evaluator says. @return the launches.
std::string executed(const std::string& text, bool fuse = false, CaptureOptions options = {}) {
  register_ops();
  Partitioned partitioned(text, fuse, std::move(options));
  std::vector<ir::Literal> arguments;
  for (const ir::Value& input : partitioned.graph().inputs()) {
    ir::Sizes sizes;
    for (const ir::SymExpr& size : input.meta().sizes)
      sizes.push_back(size.is_constant() ? size.constant() : 8);
    ir::Literal literal(input.meta().dtype, sizes);
    for (std::int64_t k = 0; k < literal.count(); ++k)
      literal.set(k, 0.25 * static_cast<double>((k + 3 * arguments.size()) % 7) - 0.5);
    arguments.push_back(std::move(literal));
  }
  std::vector<ir::Literal> copies;
  for (const ir::Literal& literal : arguments) copies.push_back(literal.clone());
  const std::vector<ir::Literal> want = ir::evaluate(partitioned.graph(), copies);
  const std::vector<ir::Literal> got = partitioned.run(arguments);
  EXPECT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size() && k < want.size(); ++k)
    for (std::int64_t i = 0; i < want[k].count(); ++i)
      EXPECT_NEAR(got[k].at(i), want[k].at(i), 1e-5) << "result " << k << ", element " << i;
  return partitioned.launched();
}

CaptureOptions without_reorder() {
  CaptureOptions options;
  options.reorder = false;
  return options;
}

TEST(CaptureOfGraphs, A3_18_ReordersToTheFewestPartitions) {
  const std::string text =
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
      "}\n";
  const Lowered lowered(text);
  EXPECT_EQ(lowered.text(lowered.plan(without_reorder())), "[x1,y1] [c,c1]! [z] [g]! [a,b,o]");
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[x1,y1,z,a,b] [c,c1,g]! [o]");
  EXPECT_EQ(plan.maps.size(), 2u);
  EXPECT_TRUE(plan.reordered);
  EXPECT_EQ(plan.partitions[1].reason, "holds an op that is not capturable");
  EXPECT_EQ(executed(text), "exp,sin,matmul,add,add | ct::host,ct::host,ct::host | add");
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
  const std::string text =
      "graph @main(%in: f32[8, 4]) {\n"
      "  %x = exp(%in)\n"
      "  %mv = ct::host(%x)\n"
      "  %z = sin(%mv)\n"
      "  %v = reduce_sum(%z) {axes = [1]}\n"
      "  %md = ct::host(%v)\n"
      "  %o = cos(%md)\n"
      "  return %o\n"
      "}\n";
  const Lowered lowered(text);
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[x] [mv]! [z,v] [md]! [o]");
  EXPECT_EQ(plan.maps.size(), 3u);
  EXPECT_EQ(executed(text), "exp | ct::host | sin,reduce_sum | ct::host | cos");
}

TEST(CaptureOfGraphs, A3_22_SplitStepsMoveToTheEnds) {
  const std::string text =
      "graph @main(%x: f32[8], %m: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %mask = ct::host(%m)\n"
      "  %b = mul(%a, %mask)\n"
      "  %log = ct::host(%b)\n"
      "  %c = sin(%b)\n"
      "  return %log, %c\n"
      "}\n";
  const Lowered lowered(text);
  EXPECT_EQ(lowered.text(lowered.plan()), "[mask]! [a,b,c] [log]!");
  EXPECT_EQ(executed(text), "ct::host | exp,mul,sin | ct::host");
}

TEST(CaptureOfGraphs, A3_24_AllCapturableStaysAsItIs) {
  const std::string text =
      "graph @main(%x: f32[8]) {\n"
      "  %n1 = exp(%x)\n"
      "  %n2 = sin(%x)\n"
      "  %n3 = cos(%n2)\n"
      "  %n4 = tanh(%n1)\n"
      "  return %n3, %n4\n"
      "}\n";
  const Lowered lowered(text);
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[n1,n2,n3,n4]");
  EXPECT_FALSE(plan.reordered);
  EXPECT_THAT(plan.order, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(executed(text), "exp,sin,cos,tanh");
}

TEST(CaptureOfGraphs, A3_29_30_SmallOnesRunUncapturedAndMapsNameArguments) {
  const std::string text =
      "graph @main(%x: f32[s0], %y: f32[s0]) {\n"
      "  %a = exp(%x)\n"
      "  %b = add(%a, %y)\n"
      "  %h = ct::host(%b)\n"
      "  %o = sin(%h)\n"
      "  return %o, %a\n"
      "}\n";
  const Lowered lowered(text);
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
  EXPECT_EQ(executed(text), "exp,add | ct::host | sin");
}

TEST(CaptureOfGraphs, A3_31_OneMemberSplitsAFusedStepAndDisabledCaptureEverything) {
  const std::string text =
      "graph @main(%x: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %b = sin(%a)\n"
      "  return %b\n"
      "}\n";
  const Lowered lowered(text, true);
  CaptureOptions options;
  options.split_ops = {"sin"};
  EXPECT_EQ(lowered.text(lowered.plan(options)), "[a+b]!");
  options = {};
  options.enabled = false;
  const CapturePlan plan = lowered.plan(options);
  EXPECT_EQ(lowered.text(plan), "[a+b]!");
  EXPECT_TRUE(plan.maps.empty());
  EXPECT_EQ(executed(text, true), "exp_sin");
}

TEST(CaptureOfGraphs, ConditionsAndSizesOfValuesSplit) {
  const std::string text =
      "graph @main(%p: bool[], %x: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %c = cond(%p, %a) {then = @then, else = @else}\n"
      "  %o = sin(%c)\n"
      "  return %o\n"
      "}\n"
      "graph @then(%x: f32[8]) {\n  %y = exp(%x)\n  return %y\n}\n"
      "graph @else(%x: f32[8]) {\n  %y = cos(%x)\n  return %y\n}\n";
  const Lowered lowered(text);
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[a] [c]! [o]");
  EXPECT_EQ(executed(text), "exp | cond | sin");
}

// A region's result feeds an op that writes; its results are taken in two partitions.
TEST(CaptureOfGraphs, AX_03_ARegionIntoAWritingOpWhoseResultsArePartedByASplit) {
  const std::string text =
      "graph @main(%x: f32[8], %counts: f32[8]) {\n"
      "  %m = mul(%x, %x) @{compile = \"r\"}\n"
      "  %s = sin(%m) @{compile = \"r\"}\n"
      "  %u, %v, %new = ct::route(%s, %counts)\n"
      "  %a = exp(%u)\n"
      "  %h = ct::host(%a)\n"
      "  %b = add(%h, %v)\n"
      "  write_back %counts = %new\n"
      "  return %b\n"
      "}\n";
  const Lowered lowered(text, true);
  const CapturePlan plan = lowered.plan();
  EXPECT_EQ(lowered.text(plan), "[m+s,u,a] [h]! [b]");
  // Elements cross on their own: u has died, v is handed on, the container is nothing that could cross.
  EXPECT_THAT(lowered.names(plan.partitions[0].inputs), ElementsAre("x", "counts"));
  EXPECT_THAT(lowered.names(plan.partitions[0].outputs), ::testing::IsSupersetOf({"v", "a"}));
  EXPECT_THAT(lowered.names(plan.partitions[0].outputs), ::testing::Not(::testing::Contains("u")));
  EXPECT_THAT(lowered.names(plan.partitions[1].inputs), ElementsAre("a"));
  EXPECT_THAT(lowered.names(plan.partitions[2].inputs), ::testing::UnorderedElementsAre("h", "v"));
  EXPECT_EQ(lowered.program.record.kernels[0].region, "region_0");
  EXPECT_EQ(executed(text, true), "mul_sin,ct::route,exp | ct::host | add");
}

/// Device and host steps that read, update in place and write a state, with order edges.
std::string random_partitions(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::uint32_t>(random() % limit);
  };
  std::vector<std::string> values{"%x", "%y"};
  const auto any = [&] { return values[below(static_cast<std::uint32_t>(values.size()))]; };
  const std::uint32_t count = 3 + below(9);
  const std::uint32_t writer = below(2 * count);
  std::string text = "graph @main(%x: f32[8], %y: f32[8], %s: f32[8], %v: f32[2], %i: i64[2]) {\n";
  for (std::uint32_t k = 0; k < count; ++k) {
    std::string node;
    std::string results = "%n" + std::to_string(k);
    switch (below(7)) {
      case 0:
      case 1:
        node = "ct::host(" + any() + ")";
        break;
      case 2:
        node = "index_put(" + any() + ", %v, %i)";
        break;
      case 3:
        text += "  %a" + std::to_string(k) + " = slice(" + any() +
                ") {start = [1], limit = [5], stride = [1]}\n";
        node = "concat(%a" + std::to_string(k) + ", %a" + std::to_string(k) + ") {axis = 0}";
        break;
      case 4:
        node = "add(" + any() + ", " + any() + ")";
        break;
      default:
        node = "sin(" + any() + ")";
    }
    if (k == writer) {
      node = "ct::route(" + any() + ", %s)";
      results += ", %u, %t";
    }
    text += "  " + results + " = " + node;
    if (k > 0 && below(3) == 0) text += " after(%n" + std::to_string(below(k)) + ")";
    text += "\n";
    values.push_back("%n" + std::to_string(k));
    if (k == writer) values.push_back("%u");
  }
  if (writer < count) text += "  write_back %s = %t\n";
  return text + "  return " + values.back() + ", " + any() + ", " + any() + "\n}\n";
}

// S3-22 to S3-32: each partition is the function that its signature says, in the order that capture wants, fused or not.
TEST(CaptureOfGraphs, RandomPartitionsAreFunctions) {
  std::size_t split = 0;
  for (std::uint32_t seed = 0; seed < 200 && !::testing::Test::HasFailure(); ++seed) {
    const std::string text = random_partitions(seed);
    SCOPED_TRACE(text);
    CaptureOptions options;
    if (seed % 3 == 0) options.split_ops = {"index_put"};
    const std::string launched = executed(text, seed % 2 == 0, options);
    split += static_cast<std::size_t>(std::ranges::count(launched, '|'));
  }
  EXPECT_GT(split, 200u);
}

}  // namespace
}  // namespace heddle::engine
