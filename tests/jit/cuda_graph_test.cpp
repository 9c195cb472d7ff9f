// Whole graphs on CUDA: lowered for it, their kernels emitted, taken by NVRTC, and run on the simulated
// device against the reference evaluator.
#include <gtest/gtest.h>
#include <map>

#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/text.h"
#include "tests/jit/cuda_graph_cases.h"
#include "tests/jit/cuda_runner.h"
#include "tests/jit/lower_support.h"
#include "tests/jit/of_architecture.h"
#include "tests/support/one_op.h"
#include "tests/support/random_graph.h"

namespace heddle::tests {
namespace {

/// A graph lowered for CUDA, and where it runs.
struct LoweredCase {
  std::string what;
  ir::Graph graph;
  std::vector<std::vector<std::int64_t>> sizes;
  double tolerance;
  jit::Program program;
};

/// Lowered graphs, and each nest of theirs once, under a name of its own.
class Lowered {
 public:
  Lowered() = default;
  /// @param most_blocks  that a kernel is launched with
  explicit Lowered(std::int64_t most_blocks)
      : options_{.max_blocks = most_blocks, .max_scratch_blocks = most_blocks} {}

  void add(std::string what, ir::Graph graph, std::vector<std::vector<std::int64_t>> sizes,
           double tolerance, bool fuse = true) {
    jit::Program program = jit::lower(graph, {.target = jit::LowerOptions::Target::Cuda,
                                              .rest = {.fuse = fuse, .library = false}});
    for (const jit::ProgramKernel& kernel : program.kernels) add_kernel(*kernel.nest);
    cases_.push_back(
        {std::move(what), std::move(graph), std::move(sizes), tolerance, std::move(program)});
  }

  /// Every graph at all its sizes, on the simulated device, against the evaluator.
  void expect_right() const {
    SimulatedKernels device(kernels_);
    const auto runner = [&](const jit::Nest& nest, std::span<const test::InterpreterBuffer> buffers,
                            std::span<const std::int64_t> sizes) {
      std::vector<std::span<unsigned char>> spans;
      for (std::size_t b = 0; b < buffers.size(); ++b)
        spans.emplace_back(
            static_cast<unsigned char*>(buffers[b].data),
            static_cast<std::size_t>(buffers[b].count) * size_of(nest.buffers[b].dtype));
      const std::size_t k = position_.at(jit::structural_key(nest).hex());
      return device.run(k, {sizes.begin(), sizes.end()}, spans);
    };
    for (const LoweredCase& one : cases_)
      for (const std::vector<std::int64_t>& sizes : one.sizes) {
        SCOPED_TRACE(one.what);
        SCOPED_TRACE(::testing::PrintToString(sizes));
        expect_right(one, test::random_arguments(one.graph, sizes), runner);
        if (::testing::Test::HasFailure()) return;
      }
  }

  /// All kernels as one text.
  std::string text() const {
    std::string kernels;
    for (const auto& source : kernels_) kernels += source.kernel + "\n";
    return jit::cuda::prelude_for(kernels) + kernels;
  }

 private:
  void add_kernel(jit::Nest nest) {
    const std::string key = jit::structural_key(nest).hex();
    if (!position_.try_emplace(key, kernels_.size()).second) return;
    nest.name += "_" + key.substr(0, 8);
    kernels_.push_back(jit::cuda::emit_cuda(nest, options_));
  }

  static void expect_right(const LoweredCase& one, const std::vector<ir::Literal>& arguments,
                           const test::NestRunner& runner) {
    const auto want = ir::evaluate(one.graph, arguments);
    const auto got = test::run_program(one.graph, one.program, arguments, {.runner = runner});
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < want.size(); ++k)
      heddle::testing::expect_close(got[k], want[k],
                                    is_floating(want[k].dtype()) ? one.tolerance : 0);
  }

  jit::cuda::CudaOptions options_;
  std::vector<LoweredCase> cases_;
  std::vector<jit::cuda::CudaSource> kernels_;
  std::map<std::string, std::size_t> position_;  ///< of a nest's kernel, by structural key
};

void add_cases(Lowered& all) {
  for (const GraphCase& one : cuda_graph_cases())
    all.add(one.text, ir::parse(one.text), one.sizes, one.tolerance);
}

const Lowered& lowered() {
  static const Lowered all = [] {
    Lowered result;
    add_cases(result);
    return result;
  }();
  return all;
}

TEST(CudaGraph, RunsLikeTheEvaluator) { lowered().expect_right(); }

/// Blocks that have several rows one after the other begin each anew.
TEST(CudaGraph, TwoBlocksGoRoundForAllThereIs) {
  Lowered few(2);
  add_cases(few);
  few.expect_right();
}

TEST(CudaGraph, RandomGraphsRunLikeTheEvaluator) {
  Lowered random;
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const ir::Graph graph = test::RandomGraph(seed).make();
    random.add("seed " + std::to_string(seed) + "\n" + test::text_of(graph), graph,
               {{2 + seed % 2, 19}}, 1e-4, seed % 4 != 0);
  }
  random.expect_right();
}

class CudaGraphNvrtc : public OfArchitecture {};

TEST_P(CudaGraphNvrtc, CompilesTheKernels) {
  std::unique_ptr<device::cuda::Nvrtc> nvrtc;
  try {
    nvrtc = std::make_unique<device::cuda::Nvrtc>();
  } catch (const DeviceError&) {
    GTEST_SKIP() << "libnvrtc is not on this machine";
  }
  const auto compiled =
      nvrtc->compile_cubin(lowered().text(), "graphs", GetParam(), {"--ptxas-options=-O0"});
  EXPECT_EQ(compiled.log, "");
  EXPECT_FALSE(compiled.image.empty());
}

INSTANTIATE_TEST_SUITE_P(Arch, CudaGraphNvrtc, ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& arch) { return std::string(arch.param); });

}  // namespace
}  // namespace heddle::tests
