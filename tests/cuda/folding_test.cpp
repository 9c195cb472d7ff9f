// Steps that read constants only, run once on the CUDA device: what a build does that has no compiler for the CPU.
#include <gmock/gmock.h>
#include <string>

#include "engine/cuda_runtime.h"
#include "engine/fold.h"
#include "heddle/error.h"
#include "ir/text.h"
#include "jit/program.h"
#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;

/// 24 numbers as a constant %w, then %m [6, 4] of them.
std::string weights() {
  std::string numbers;
  for (int k = 0; k < 24; ++k) numbers += (k == 0 ? "" : ", ") + std::to_string(0.25 * (k % 7));
  return "  %w = const [" + numbers + "]: f32\n  %m = reshape(%w) {sizes = [6, 4]}\n";
}

/// Two steps of constants, of which the second one reads what the first one makes, and one that reads the input.
std::string two_layers() {
  return "graph @main(%x: f32[s0, 6]) {\n" + weights() +
         "  %s = softmax(%m)\n  %c = cumsum(%s) {axis = 0}\n  %y = matmul(%x, %c)\n"
         "  return %y\n}\n";
}

struct Folded {
  explicit Folded(const std::string& text) : graph(ir::parse(text)) {
    jit::LowerOptions options;
    options.target = jit::LowerOptions::Target::Cuda;
    options.rest.library = false;
    program = jit::lower(graph, options);
    fixed = engine::fixed_buffers(program, graph);
    count = engine::FixedSteps(program, fixed, *folding, nullptr).run();
  }
  ir::Graph graph;
  engine::CudaRuntimePtr runtime = engine::CudaRuntime::get(cuda_device());
  std::unique_ptr<engine::FoldingKernels> folding = engine::fold_on_cuda(runtime, nullptr);
  jit::Program program;
  std::vector<ir::Literal> fixed;
  std::size_t count = 0;
};

TEST(CudaFolding, LeavesTheProgramWhatReadsInputs) {
  Folded folded(two_layers());
  EXPECT_EQ(folded.count, 2u);
  ASSERT_EQ(folded.program.record.steps.size(), 1u);
  Engine rest = parse_ir("graph @main(%x: f32[s0, 6]) {\n" + weights() +
                             "  %s = softmax(%m)\n  %c = cumsum(%s) {axis = 0}\n  return %c\n}\n",
                         {.device = Device::reference()});
  const std::vector<double> want = rest.run({counted(f32, {1, 6})})[0].to_doubles();
  const ir::Literal& got = *folded.program.constants.back();
  ASSERT_EQ(got.count(), static_cast<std::int64_t>(want.size()));
  for (std::size_t k = 0; k < want.size(); ++k)
    EXPECT_NEAR(got.data_as<float>()[k], want[k], 1e-5) << k;
}

TEST(CudaFolding, ResultsAreOnTheDevice) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Folded folded(two_layers());
  const ir::Literal& result = *folded.program.constants.back();
  control().fail(0, 0);
  const auto bytes = folded.runtime->upload(result);
  EXPECT_EQ(control().calls_of("cuMemcpyHtoDAsync"), 0u);
  std::vector<float> there(24);
  folded.runtime->copy_out(there.data(), bytes->address(), result.bytes());
  EXPECT_EQ(std::memcmp(there.data(), result.unaligned_data(), result.bytes()), 0);
}

/// What is made there is not sent there as zeros first.
TEST(CudaFolding, OnlyWeightsAreSentToTheDevice) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  control().fail(0, 0);
  Folded folded(two_layers());
  EXPECT_EQ(folded.count, 2u);
  EXPECT_EQ(control().calls_of("cuMemcpyHtoDAsync"), 1u);
}

/// What a step overwrites a part of, another has made there.
TEST(CudaFolding, StepsInPlaceFindWhatIsThere) {
  const std::string two_rows =
      weights() +
      "  %s = softmax(%m)\n  %at = const [1]: i64\n  %on = const [4]: i64\n"
      "  %r = const [1.0, 2.0, 3.0, 4.0]: f32\n  %v = reshape(%r) {sizes = [1, 4]}\n"
      "  %p = index_put(%s, %v, %at) {in_place = [0]}\n"
      "  %c = index_put(%p, %v, %on) {in_place = [0]}\n";
  Folded folded("graph @main(%x: f32[s0, 6]) {\n" + two_rows +
                "  %y = matmul(%x, %c)\n  return %y\n}\n");
  EXPECT_EQ(folded.count, 3u);
  ASSERT_EQ(folded.program.record.steps.size(), 1u);
  const ir::Literal& got = *folded.program.constants.back();
  for (const int row : {1, 4})
    for (int k = 0; k < 4; ++k) EXPECT_EQ(got.data_as<float>()[4 * row + k], k + 1);
  float sum = 0;
  for (int k = 0; k < 4; ++k) sum += got.data_as<float>()[k];
  EXPECT_NEAR(sum, 1, 1e-5) << "a row of the softmax";
}

/// A call reads what was there before a constant takes its place: each call makes both anew.
TEST(CudaFolding, WhatIsReadBetweenStepsInPlaceStays) {
  const std::string row =
      "  %s = softmax(%m)\n  %at = const [1]: i64\n  %r = const [1.0, 2.0, 3.0, 4.0]: f32\n"
      "  %v = reshape(%r) {sizes = [1, 4]}\n";
  Folded folded("graph @main(%x: f32[s0, 6]) {\n" + weights() + row +
                "  %z = matmul(%x, %s)\n"
                "  %p = index_put(%s, %v, %at) {in_place = [0]} after(%z)\n"
                "  %y = matmul(%x, %p)\n  return %y, %z\n}\n");
  EXPECT_EQ(folded.count, 0u);
}

/// An address that another literal took is not where its bytes are.
TEST(CudaFolding, ALiteralThatIsGoneIsForgotten) {
  const auto runtime = engine::CudaRuntime::get(cuda_device());
  std::vector<float> memory(16, 1);
  const auto literal = [&] {
    return ir::Literal(f32, {16}, {1}, memory.data(), std::make_shared<int>(0));
  };
  auto first = std::make_optional(literal());
  const auto bytes = runtime->upload(*first);
  EXPECT_EQ(runtime->upload(*first), bytes) << "one copy for all";
  first.reset();
  EXPECT_NE(runtime->upload(literal()), bytes);
}

TEST(CudaFolding, ACheckThatFailsIsAnIndexError) {
  const std::string text = "graph @main(%x: f32[s0, 4]) {\n" + weights() +
                           "  %i = const [2, 7]: i64\n  %g = gather(%m, %i) {axis = 0}\n"
                           "  %y = matmul(%g, %x)\n  return %y\n}\n";
  EXPECT_THROW(Folded{text}, IndexError);
}

}  // namespace
}  // namespace heddle::testing
