// The plan checker accepts what the engine makes, and finds each fault that is planted in it.
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>

#include "engine/executable.h"
#include "heddle/custom_op.h"
#include "heddle/error.h"
#include "ir/analysis/plan_checker.h"
#include "ir/analysis/regions.h"
#include "ir/text.h"

namespace heddle::engine {
namespace {

using ir::BufferId;
using ir::StepId;

/// Keeps the engine from proving plans itself, so that a fault comes as far as the test.
class NoChecks {
 public:
  NoChecks() {
    if (const char* text = std::getenv(kVariable)) before_ = text;
    unsetenv(kVariable);
  }
  ~NoChecks() {
    if (before_) setenv(kVariable, before_->c_str(), 1);
  }
  NoChecks(const NoChecks&) = delete;
  NoChecks& operator=(const NoChecks&) = delete;

 private:
  static constexpr const char* kVariable = "HEDDLE_CHECK_PLANS";
  std::optional<std::string> before_;
};

/// A compiled graph, one kernel a node, and a copy of its plan in which faults are planted.
class Planned {
 public:
  explicit Planned(const char* text, int threads = 1,
                   jit::Program (*lower)(const ir::Graph&, const jit::LowerOptions&) = jit::lower) {
    const NoChecks no_checks;
    BuildOptions options;
    options.engine.threads = threads;
    options.engine.fuse = false;
    options.engine.order = StepOrder::Given;
    options.compiler = &jit::CompileService::shared();
    options.lower = lower;
    executable_ = std::make_shared<Executable>(ir::parse(text), Guards{}, options);
    plan_ = executable_->bind({}, threads);
    record = executable_->schedule().record;
    offsets = plan_->memory.offsets;
    for (std::uint32_t stage = 0; stage < executable_->schedule().stages.size(); ++stage)
      stage_of.insert(stage_of.end(), executable_->schedule().stages[stage].size(), stage);
    for (const memory::Lifetime& life : executable_->planner().lifetimes())
      lifetimes.push_back({life.first_step, life.last_step});
    const auto places = executable_->unit().shared_places();
    shared.assign(places.begin(), places.end());
  }

  /// The step that computes the node called `name`.
  StepId step(std::string_view name) const {
    for (StepId k = 0; k < record.steps.size(); ++k)
      for (const std::string& node : record.kernels[record.steps[k].kernel].nodes)
        if (node == name) return k;
    ADD_FAILURE() << "no step computes " << name;
    return 0;
  }
  BufferId buffer(std::string_view value) const {
    for (BufferId b = 0; b < record.buffers.size(); ++b)
      if (record.buffers[b].value == value) return b;
    ADD_FAILURE() << "no buffer holds " << value;
    return 0;
  }
  /// What the checker says; empty: nothing.
  std::string fault(const ir::HappensBefore& before) const { return fault(before, graph()); }
  std::string fault(const ir::HappensBefore& before, const ir::Graph& graph) const {
    try {
      ir::check_plan({.graph = graph,
                      .record = record,
                      .before = before,
                      .sizes = plan_->sizes,
                      .outputs = executable_->program().outputs,
                      .offsets = offsets,
                      .arena_bytes = plan_->memory.peak_bytes,
                      .lifetimes = lifetimes,
                      .shared = shared});
    } catch (const InvariantError& error) {
      return error.what();
    }
    return {};
  }
  std::string fault() const { return fault(ir::HappensBefore::in_stages(stage_of)); }
  const ir::Graph& graph() const { return executable_->program().graph; }
  /// Moves a step to another place in the record; edges to it and from it go.
  void move(StepId from, StepId to) {
    ir::PlanStep moved = std::move(record.steps[from]);
    record.steps.erase(record.steps.begin() + from);
    record.steps.insert(record.steps.begin() + to, std::move(moved));
    for (ir::PlanStep& each : record.steps) each.edges.clear();
  }

  ir::ScheduleRecord record;
  std::vector<std::uint32_t> stage_of;
  std::vector<std::int64_t> offsets;
  std::vector<ir::StepRange> lifetimes;
  std::vector<ir::SharedPlace> shared;

 private:
  std::shared_ptr<Executable> executable_;
  std::unique_ptr<BoundPlan> plan_;
};

constexpr const char* kChain = R"(
graph @main(%x: f32[64]) {
  %a = exp(%x)
  %b = cumsum(%a) {axis = 0}
  %c = add(%b, %a)
  %d = cumsum(%c) {axis = 0}
  %e = neg(%d)
  %f = cumsum(%e) {axis = 0}
  return %f
}
)";

constexpr const char* kTwo = R"(
graph @main(%x: f32[64], %y: f32[64]) {
  %first = exp(%x)
  %second = neg(%y) after(%first)
  return %first, %second
}
)";

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PlanCheck, AcceptsWhatTheEngineMakes) {
  for (const char* text : {kChain, kTwo})
    for (const int threads : {1, 2}) EXPECT_EQ(Planned(text, threads).fault(), "");
}

// The reuse that the faults below are about is there.
TEST(PlanCheck, TheChainReusesBytes) {
  const Planned plan(kChain);
  EXPECT_EQ(plan.offsets[plan.buffer("c")], plan.offsets[plan.buffer("b")]);
  EXPECT_EQ(plan.offsets[plan.buffer("e")], plan.offsets[plan.buffer("d")]);
}

jit::Program lower_without_weak_edges(const ir::Graph& graph, const jit::LowerOptions& options) {
  jit::Program program = jit::lower(graph, options);
  for (ir::PlanStep& step : program.record.steps)
    std::erase_if(step.edges, [](const ir::PlanEdge& edge) { return edge.weak; });
  return program;
}

TEST(PlanCheck, DroppedWeakEdge) {
  const Planned plan(kTwo, 2, lower_without_weak_edges);
  EXPECT_EQ(plan.stage_of, (std::vector<std::uint32_t>{0, 0}));
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P6 order edges hold at exp (step 0) and neg"),
                                  HasSubstr("%first before %second")));
}

TEST(PlanCheck, DroppedWeakEdgeOfTheGraphBeforeItsPasses) {
  const Planned plan(kTwo, 2, lower_without_weak_edges);
  const ir::HappensBefore before = ir::HappensBefore::in_stages(plan.stage_of);
  EXPECT_THROW(ir::check_order(ir::parse(kTwo), plan.graph(), plan.record, before), InvariantError);
}

// With the option, an executable with such a fault is never made.
TEST(PlanCheck, TheEngineProvesItsPlans) {
  BuildOptions options;
  options.engine.threads = 2;
  options.engine.fuse = false;
  options.engine.check_plans = true;
  options.compiler = &jit::CompileService::shared();
  EXPECT_NO_THROW(std::make_shared<Executable>(ir::parse(kTwo), Guards{}, options)->bind({}, 2));
  options.lower = lower_without_weak_edges;
  EXPECT_THROW(std::make_shared<Executable>(ir::parse(kTwo), Guards{}, options), InvariantError);
}

TEST(PlanCheck, DroppedStrongEdgeAndTheStepsRunTogether) {
  Planned plan(kChain);
  const StepId b = plan.step("b");
  plan.record.steps[b].edges.clear();
  plan.stage_of[b] = plan.stage_of[plan.step("a")];
  EXPECT_THAT(plan.fault(),
              AllOf(StartsWith("plan: P3 steps that may run together"), HasSubstr("%a in cumsum")));
}

TEST(PlanCheck, DroppedStrongEdgeAndTheReaderComesFirst) {
  Planned plan(kChain);
  plan.move(plan.step("b"), plan.step("a"));
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P2 a step finds"), HasSubstr("got nothing")));
}

TEST(PlanCheck, EdgeThatDoesNotHold) {
  Planned plan(kTwo);
  plan.stage_of = {0, 0};
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P1 edges hold"), HasSubstr("(weak)")));
}

// A planner that does not see the last read of %a gives its bytes away one step early.
TEST(PlanCheck, FreedOneStepEarly) {
  Planned plan(kChain);
  ir::ScheduleRecord seen = plan.record;
  ir::PlanStep& last = seen.steps[plan.step("c")];
  std::erase(last.reads, plan.buffer("a"));
  last.may_reuse.clear();
  const memory::Planner planner(seen, plan.stage_of, {});
  plan.offsets = planner.bind({}).offsets;
  plan.lifetimes.clear();
  EXPECT_THAT(plan.fault(), StartsWith("plan: P"));
  EXPECT_THAT(plan.fault(), HasSubstr("%a"));
}

TEST(PlanCheck, FreeEventOneStepEarly) {
  Planned plan(kChain);
  --plan.lifetimes[plan.buffer("a")].last;
  EXPECT_THAT(plan.fault(),
              AllOf(StartsWith("plan: P10 bytes are there"), HasSubstr("%a in add (step 2)")));
}

TEST(PlanCheck, TwoLiveBuffersAtOneOffset) {
  Planned plan(kChain);
  plan.offsets[plan.buffer("b")] = plan.offsets[plan.buffer("a")];
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P2 a step finds what its buffer was given"),
                                  HasSubstr("%a in add"), HasSubstr("got %b of cumsum")));
}

TEST(PlanCheck, OperandOverwrittenByAKernelThatMayNot) {
  Planned plan(kChain);
  plan.record.steps[plan.step("c")].may_reuse.clear();
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P4 operands are overwritten"),
                                  HasSubstr("%b to stay"), HasSubstr("%c in its bytes")));
}

TEST(PlanCheck, BuffersThatOverlapInPart) {
  Planned plan(kChain);
  plan.offsets[plan.buffer("b")] = plan.offsets[plan.buffer("a")] + 128;
  EXPECT_NE(plan.fault(), "");
}

// %b may take the place of %a as far as its kernel goes, but %c still reads %a.
TEST(PlanCheck, InPlaceWithAPendingReader) {
  Planned plan(R"(
graph @main(%x: f32[64]) {
  %a = exp(%x)
  %b = neg(%a)
  %c = cumsum(%b) {axis = 0}
  %d = add(%c, %a)
  %e = cumsum(%d) {axis = 0}
  return %e
}
)");
  EXPECT_EQ(plan.fault(), "");
  EXPECT_FALSE(plan.record.steps[plan.step("b")].may_reuse.empty());
  plan.offsets[plan.buffer("b")] = plan.offsets[plan.buffer("a")];
  EXPECT_THAT(plan.fault(),
              AllOf(StartsWith("plan: P2 a step finds what its buffer was given at %a"),
                    HasSubstr("got %b of neg (step 1)")));
}

TEST(PlanCheck, ConstantWritten) {
  Planned plan(R"(
graph @main(%x: f32[2]) {
  %k = const [1.5, 2.5]: f32
  %b = add(%x, %k)
  return %b
}
)");
  EXPECT_EQ(plan.fault(), "");
  plan.record.steps[plan.step("b")].writes.push_back(plan.buffer("k"));
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P8 the caller's memory"), HasSubstr("%k")));
}

TEST(PlanCheck, ArgumentWritten) {
  Planned plan(kChain);
  plan.record.steps[plan.step("b")].writes.push_back(plan.buffer("x"));
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P8"), HasSubstr("%x to stay as it is")));
}

TEST(PlanCheck, AliasThatTheGraphDoesNotKnow) {
  Planned plan(kChain);
  plan.record.buffers[plan.buffer("b")].alias_of = plan.buffer("a");
  EXPECT_THAT(plan.fault(), StartsWith("plan: P7 aliases share storage in the graph at %b"));
}

TEST(PlanCheck, OutputOfAnotherValue) {
  Planned plan(kTwo);
  plan.record.steps.pop_back();
  plan.stage_of.pop_back();
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P9 results"), HasSubstr("got nothing")));
}

TEST(PlanCheck, ReadOfAnotherBuffer) {
  Planned plan(kTwo);
  ir::PlanStep& step = plan.record.steps[plan.step("second")];
  std::replace(step.reads.begin(), step.reads.end(), plan.buffer("y"), plan.buffer("x"));
  EXPECT_THAT(plan.fault(), StartsWith("plan: P5 a step reads what its nodes read"));
}

TEST(PlanCheck, BeyondTheArena) {
  Planned plan(kChain);
  plan.offsets[plan.buffer("c")] += 4096;
  EXPECT_THAT(plan.fault(), StartsWith("plan: P11 the arena holds every buffer"));
}

constexpr const char* kDonated = R"(
graph @main(%x: donated f32[64], %y: f32[64], %i: i64[1], %v: f32[1]) {
  %a = exp(%x)
  %b = mul(%a, %x)
  %c = cumsum(%b) {axis = 0}
  %u = index_put(%x, %v, %i)
  %d = cumsum(%u) {axis = 0}
  %e = neg(%y)
  return %c, %d, %e
}
)";

// Only what comes after the last reader may lie in a donated argument.
TEST(PlanCheck, DonatedArgumentsMayBeOverwritten) {
  const Planned plan(kDonated);
  EXPECT_EQ(plan.fault(), "");
  EXPECT_EQ(plan.record.buffers[plan.buffer("u")].alias_of, plan.buffer("x"));
  EXPECT_EQ(plan.shared, (std::vector<ir::SharedPlace>{{0, 1}, {0, 2}}))
      << "%c is written before %u; the kernel of %d may write where it reads";
}

TEST(PlanCheck, OutputInAnArgumentThatIsStillRead) {
  Planned plan(kDonated);
  plan.shared.push_back({0, 0});
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P13 an output takes the place"),
                                  HasSubstr("output 0 in argument 0"), HasSubstr("to have ended")));
}

TEST(PlanCheck, OutputInAnArgumentThatIsNotDonated) {
  Planned plan(kDonated);
  plan.shared.push_back({1, 2});
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P13"), HasSubstr("a donated argument")));
}

TEST(PlanCheck, OutputThatAKernelMayNotPutInItsOperand) {
  Planned plan(R"(
graph @main(%x: donated f32[64]) {
  %a = neg(%x)
  return %a
}
)");
  EXPECT_EQ(plan.shared.size(), 1u);
  EXPECT_EQ(plan.fault(), "");
  plan.record.steps[0].may_reuse.clear();
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P13"), HasSubstr("the same step")));
}

TEST(PlanCheck, DonatedArgumentGivenBackOneStepEarly) {
  Planned plan(kDonated);
  --plan.lifetimes[plan.buffer("x")].last;
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P10 bytes are there"), HasSubstr("cumsum")));
}

// The record alone says that the argument is donated: the graph does not.
TEST(PlanCheck, ArgumentThatOnlyThePlanCallsDonated) {
  Planned plan(kChain);
  plan.record.buffers[plan.buffer("x")].donated = true;
  plan.record.steps[plan.step("b")].writes.push_back(plan.buffer("x"));
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P8"), HasSubstr("%x to stay as it is")));
}

/// plan::log(Tensor x) -> Tensor: has effects, as far as the engine can know.
void register_log() {
  static const RegisteredOp op =
      register_op({.schema = "plan::log(Tensor x) -> Tensor",
                   .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
                   .cpu = [](const KernelCall&) {},
                   .pure = false});
}

constexpr const char* kEffects = R"(
graph @main(%x: f32[4]) {
  %first = plan::log(%x)
  %second = plan::log(%x) after(%first)
  %y = neg(%x)
  return %y
}
)";

TEST(PlanCheck, EffectWithoutAStep) {
  register_log();
  Planned plan(kEffects);
  EXPECT_EQ(plan.fault(), "");
  const StepId second = plan.step("second");
  plan.record.steps.erase(plan.record.steps.begin() + second);
  plan.stage_of.erase(plan.stage_of.begin() + second);
  plan.lifetimes.clear();
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P14 each node with effects runs in one step at "
                                             "%second (plan::log): expected one step"),
                                  HasSubstr("got none")));
}

TEST(PlanCheck, EffectInTwoSteps) {
  register_log();
  Planned plan(kEffects);
  ir::PlanStep again = plan.record.steps[plan.step("second")];
  plan.record.steps.push_back(again);
  plan.stage_of.push_back(plan.stage_of.back() + 1);
  plan.lifetimes.clear();
  EXPECT_THAT(plan.fault(), AllOf(StartsWith("plan: P14"), HasSubstr("%second"),
                                  HasSubstr("got plan::log (step 1) and plan::log")));
}

constexpr const char* kEffectsInBodies = R"(
graph @main(%p: bool[], %x: f32[4]) {
  %c = cond(%p, %x) {then = @noisy, else = @quiet} : f32[4]
  %d = cond(%p, %c) {then = @noisy, else = @quiet} after(%c) : f32[4]
  return %d
}
graph @noisy(%x: f32[4]) {
  %first = plan::log(%x)
  %second = exp(%x) after(%first)
  %third = plan::log(%x) after(%second)
  return %second
}
graph @quiet(%x: f32[4]) {
  %y = neg(%x)
  return %y
}
)";

/// What an engine that proves its plans says of a graph that `fault` changes behind all passes.
std::string refused(const char* text,
                    jit::Program (*fault)(const ir::Graph&, const jit::LowerOptions&)) {
  BuildOptions options;
  options.engine.threads = 2;
  options.engine.fuse = false;
  options.engine.check_plans = true;
  options.compiler = &jit::CompileService::shared();
  options.lower = fault;
  try {
    const auto executable = std::make_shared<Executable>(ir::parse(text), Guards{}, options);
    executable->bind({}, 2);
  } catch (const InvariantError& error) {
    return error.what();
  }
  return "";
}

ir::Graph without(const ir::Graph& graph, std::string_view name) {
  return ir::Rewriter::keep_only(graph, [&](const ir::Node& node) { return node.name() != name; });
}

ir::Graph without_order(const ir::Graph& graph) {
  return ir::rewrite(
      graph,
      [](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<ir::Value>> {
        if (node->after().empty()) return {};
        const ir::Node* made =
            rewriter.builder().with_inputs(node, rewriter.map(node->inputs()), {});
        return std::vector<ir::Value>{made->value()};
      });
}

TEST(PlanCheck, TheEngineFindsDroppedEffects) {
  register_log();
  EXPECT_EQ(refused(kEffects, jit::lower), "");
  EXPECT_EQ(refused(kEffectsInBodies, jit::lower), "");
  const auto drop = [](const ir::Graph& graph, const jit::LowerOptions& options) {
    return jit::lower(without(graph, "second"), options);
  };
  EXPECT_EQ(refused(kEffects, drop),
            "plan: P14 each node with effects runs in one step at @main: expected plan::log, got "
            "nothing");
  const auto drop_in_bodies = [](const ir::Graph& graph, const jit::LowerOptions& options) {
    return jit::lower(
        ir::change_regions(graph, [](const ir::Graph& body) { return without(body, "third"); }),
        options);
  };
  EXPECT_EQ(refused(kEffectsInBodies, drop_in_bodies),
            "plan: P14 each node with effects runs in one step at @main: expected cond with "
            "plan::log, plan::log, cond with plan::log, plan::log, got cond with plan::log, cond "
            "with plan::log");
}

/// Fuses whatever data allows: no order edge keeps nodes in kernels of their own.
jit::Program lower_fused_without_order(const ir::Graph& graph, const jit::LowerOptions& options) {
  jit::LowerOptions fused = options;
  fused.rest.fuse = true;
  return jit::lower(without_order(graph), fused);
}

// S4-28: one kernel may hold both nodes of an order edge only where it computes what the second one reads.
TEST(PlanCheck, OrderInOneKernelNeedsData) {
  const auto fault = [](const std::string& last) {
    const std::string text =
        "graph @main(%x: f32[8], %y: f32[8]) {\n  %p = exp(%x)\n  %a = neg(%p)\n" + last +
        "  return %a, %c\n}\n";
    const Planned plan(text.c_str(), 1, lower_fused_without_order);
    EXPECT_EQ(plan.record.steps.size(), 1u) << last;
    return plan.fault(ir::HappensBefore::in_stages(plan.stage_of), ir::parse(text));
  };
  EXPECT_EQ(fault("  %c = sin(%p) after(%a)\n"), "");
  EXPECT_EQ(fault("  %b = sin(%p)\n  %c = mul(%b, %y) after(%a)\n"), "");
  for (const char* last : {"  %c = sin(%y) after(%a)\n", "  %c = sin(%x) after(%a)\n",
                           "  %v = reshape(%y) {sizes = [8]}\n  %c = sin(%v) after(%a)\n"})
    EXPECT_THAT(fault(last), AllOf(StartsWith("plan: P6 order edges hold"),
                                   HasSubstr("%a before %c"), HasSubstr("one kernel")))
        << last;
}

// A pass that loses order in a body is found though the body's own plan is right as far as its graph goes.
TEST(PlanCheck, TheEngineFindsOrderThatABodyLost) {
  register_log();
  const auto drop = [](const ir::Graph& graph, const jit::LowerOptions& options) {
    return jit::lower(ir::change_regions(graph, without_order), options);
  };
  EXPECT_THAT(refused(kEffectsInBodies, drop),
              AllOf(StartsWith("plan: P6 order edges hold"), HasSubstr("no such order")));
}

// Two streams: without the event, or with one that is recorded too early, the order is not there.
TEST(PlanCheck, StreamsNeedTheirEvents) {
  Planned plan(kChain);
  const StepId c = plan.step("c");
  for (StepId k = c; k < plan.record.steps.size(); ++k) plan.record.steps[k].stream = 1;
  std::vector<std::vector<StepId>> waits(plan.record.steps.size());
  EXPECT_THAT(plan.fault(ir::HappensBefore::on_streams(plan.record, waits)),
              StartsWith("plan: P1"));
  for (ir::PlanStep& step : plan.record.steps) step.edges.clear();
  EXPECT_THAT(plan.fault(ir::HappensBefore::on_streams(plan.record, waits)),
              StartsWith("plan: P3"));
  waits[c] = {plan.step("a")};
  EXPECT_THAT(plan.fault(ir::HappensBefore::on_streams(plan.record, waits)),
              AllOf(StartsWith("plan: P3"), HasSubstr("%b in add")));
  waits[c] = {plan.step("b")};
  EXPECT_EQ(plan.fault(ir::HappensBefore::on_streams(plan.record, waits)), "");
}

// A step on another stream reads bytes that are given to the next value at once.
TEST(PlanCheck, ReuseAcrossStreamsNeedsAnEvent) {
  Planned plan(kChain);
  for (ir::PlanStep& step : plan.record.steps) step.edges.clear();
  const StepId c = plan.step("c");
  const StepId d = plan.step("d");
  plan.record.steps[c].stream = 1;
  std::vector<std::vector<StepId>> waits(plan.record.steps.size());
  waits[c] = {plan.step("b")};
  waits[d] = {c};
  EXPECT_EQ(plan.fault(ir::HappensBefore::on_streams(plan.record, waits)), "");
  waits[d].clear();
  EXPECT_NE(plan.fault(ir::HappensBefore::on_streams(plan.record, waits)), "");
}

}  // namespace
}  // namespace heddle::engine
