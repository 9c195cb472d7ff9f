// Mutation: without the checks that keep two values from sharing bytes while both are needed, and streams from taking memory
// that nothing orders them behind, the simulated driver notices when work runs on several streams, in whatever order.
#include <cstdlib>
#include <gmock/gmock.h>

#include "engine/cuda_context.h"
#include "engine/cuda_runtime.h"
#include "engine/guards.h"
#include "ir/text.h"
#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;

/// %b and %c read %a on streams of their own; nothing orders the two.
constexpr const char* kBranches = R"(graph @main(%x: f32[6, 6]) {
  %a = softmax(%x)
  %b = cumsum(%a) {axis = 1}
  %c = matmul(%a, %a)
  %d = cumsum(%b) {axis = 0}
  return %c, %d
})";

/// Both branches have a value of their own that nobody else reads.
constexpr const char* kTwoBranches = R"(graph @main(%x: f32[6, 6]) {
  %a = softmax(%x)
  %b = cumsum(%a) {axis = 1}
  %c = matmul(%a, %a)
  %d = cumsum(%b) {axis = 0}
  %e = log_softmax(%c)
  return %d, %e
})";

/// The step whose kernel is of the op `name`.
std::size_t step_of(const jit::Program& program, const std::string& name) {
  for (std::size_t k = 0; k < program.record.steps.size(); ++k)
    if (program.record.kernels[program.record.steps[k].kernel].name.find(name) != std::string::npos)
      return k;
  ADD_FAILURE() << "no step of " << name;
  return 0;
}

jit::Program lower_right(const ir::Graph& graph, const jit::LowerOptions& options) {
  return jit::lower(graph, options);
}

/// Without the check for other readers: the first cumsum writes its result over its operand.
jit::Program lower_over_what_is_read(const ir::Graph& graph, const jit::LowerOptions& options) {
  jit::Program program = jit::lower(graph, options);
  const ir::PlanStep& step = program.record.steps[step_of(program, "cumsum")];
  program.record.buffers[step.writes[0]].alias_of = step.reads[0];
  return program;
}

/// Without the check for an order of steps: the product lies where the cumsum's result does, as if either branch were done
/// before the other.
jit::Program lower_over_another_stream(const ir::Graph& graph, const jit::LowerOptions& options) {
  jit::Program program = jit::lower(graph, options);
  const std::vector<ir::PlanStep>& steps = program.record.steps;
  program.record.buffers[steps[step_of(program, "matmul")].writes[0]].alias_of =
      steps[step_of(program, "cumsum")].writes[0];
  return program;
}

using Lower = jit::Program (*)(const ir::Graph&, const jit::LowerOptions&);

/// Runs `text` on four streams as `lower` would have it. @return what the simulator objects to; empty: nothing.
std::string problem_of_faulty(const char* text, Lower lower, unsigned long seed) {
  const ir::Graph graph = ir::parse(text);
  const Tensor x = counted(f32, {6, 6});
  engine::BuildOptions options;
  options.engine = on_cuda(4, false);
  options.engine.library = false;
  options.compiler = &jit::CompileService::shared();
  options.cuda = engine::CudaRuntime::get(cuda_device());
  options.streams = 4;
  options.lower = lower;
  const auto executable =
      std::make_shared<engine::Executable>(graph, engine::guards_for(std::vector{x}, {}), options);
  const std::unique_ptr<engine::BoundPlan> plan = executable->bind({}, 1);
  engine::CudaExecutor executor(options.cuda, nullptr);
  struct None : engine::OutputSource {
    void* output(std::uint32_t, const Sizes&) override { return nullptr; }
  } none;
  std::vector<Tensor> outputs;
  for (const auto& sizes : plan->output_sizes) outputs.push_back(Tensor::empty(f32, sizes));
  interleave(seed);
  try {
    executor.run({*plan, std::vector{x}, outputs, none});
  } catch (const DeviceLost&) {
    interleave(0);
    return control().problem();
  }
  interleave(0);
  return {};
}

class CudaPlantedFaults : public ::testing::Test {
 protected:
  /// The plan's own checker would find them before anything runs.
  void SetUp() override { ::setenv("HEDDLE_CHECK_PLANS", "0", 1); }
  void TearDown() override { ::setenv("HEDDLE_CHECK_PLANS", before_.c_str(), 1); }

 private:
  std::string before_ =
      std::getenv("HEDDLE_CHECK_PLANS") == nullptr ? "0" : std::getenv("HEDDLE_CHECK_PLANS");
};

TEST_F(CudaPlantedFaults, ARightPlanIsNone) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  for (const char* text : {kBranches, kTwoBranches})
    for (const unsigned long seed : {0ul, 1ul, 5ul})
      EXPECT_EQ(problem_of_faulty(text, lower_right, seed), "");
}

TEST_F(CudaPlantedFaults, AResultOverAnOperandThatOthersReadIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  for (const unsigned long seed : {0ul, 1ul, 5ul})
    EXPECT_THAT(problem_of_faulty(kBranches, lower_over_what_is_read, seed),
                HasSubstr("neither waits for the other"));
}

TEST_F(CudaPlantedFaults, MemoryThatAnotherStreamUsesIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  for (const unsigned long seed : {0ul, 1ul, 5ul})
    EXPECT_THAT(problem_of_faulty(kTwoBranches, lower_over_another_stream, seed),
                HasSubstr("neither waits for the other"));
}

}  // namespace
}  // namespace heddle::testing
