// Work on several streams: right in every interleaving, and the simulator objects when a wait for an event
// is left out.
#include <gmock/gmock.h>

#include "tests/cuda/capture_support.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;

std::vector<Tensor> inputs() {
  return {counted(f32, {6, 6}), counted(f32, {6, 6}, 1), counted(f32, {6, 6}, 2)};
}

TEST(CudaStreams, EveryInterleavingGivesTheSameBits) {
  Engine one(three_branches, on_cuda(1, false));
  Engine many(three_branches, on_cuda(4, false));
  const std::vector<Tensor> want = one.run(inputs());
  Engine reference(three_branches, {.device = Device::reference()});
  expect_near(want[0], reference.run(inputs())[0], 1e-5);
  for (unsigned long seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    interleave(seed);
    const std::vector<Tensor> got = many.run(inputs());
    for (std::size_t k = 0; k < want.size(); ++k)
      ASSERT_EQ(got[k].to_doubles(), want[k].to_doubles());
  }
  interleave(0);
}

TEST(CudaStreams, OneStreamWaitsForNothing) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Engine engine(three_branches, on_cuda(1, false));
  std::vector<Tensor> on_device = inputs();
  for (Tensor& input : on_device) input = input.to(cuda_device());
  control().skip_wait(0);
  engine.run(on_device);
  EXPECT_EQ(control().waits(), 0u);
}

/// Inputs that the second step of a stream needs, and a result that steps follow: their copies go beside the steps.
std::vector<Tensor> chain(const Tensor& x, const Tensor& y, const Tensor& z) {
  const Tensor a = softmax(matmul(x, x), -1);
  const Tensor b = matmul(a, y);
  return {b, matmul(softmax(b, -1), z)};
}

/// Each wait of a steady call in turn is left out. The last `ends` of them are for the host alone, which would read too early: some
/// interleaving shows that. Of others every one does.
template <typename F>
void expect_every_wait_is_needed(F f, const EngineOptions& options, unsigned long least,
                                 unsigned long ends) {
  const std::vector<Tensor> first = inputs();
  const std::vector<Tensor> second = {counted(f32, {6, 6}, 3), counted(f32, {6, 6}, 4),
                                      counted(f32, {6, 6}, 5)};
  std::vector<Tensor> outputs = {Tensor::empty(f32, {6, 6}), Tensor::empty(f32, {6, 6})};
  // Graphs are made at the second call.
  const auto warm_up = [&](Engine& engine) {
    for (int call = 0; call < 2; ++call) engine.run_into(first, outputs);
  };
  unsigned long waits = 0;
  std::vector<std::vector<double>> want;
  {
    Engine engine(f, options);
    warm_up(engine);
    control().skip_wait(0);
    engine.run_into(second, outputs);
    waits = control().waits();
    for (const Tensor& output : outputs) want.push_back(output.to_doubles());
  }
  ASSERT_GE(waits, least);
  const auto is_noticed = [&](unsigned long n, unsigned long seed) {
    Engine engine(f, options);
    warm_up(engine);
    interleave(seed);
    control().skip_wait(n);
    bool noticed = false;
    try {
      engine.run_into(second, outputs);
      for (std::size_t k = 0; k < want.size(); ++k)
        noticed = noticed || outputs[k].to_doubles() != want[k];
      engine.run_into(second, outputs);
    } catch (const DeviceLost&) {
      noticed = true;
      EXPECT_THAT(std::string(control().problem()), HasSubstr("neither waits for the other"));
    }
    control().skip_wait(0);
    interleave(0);
    return noticed;
  };
  for (unsigned long n = 1; n <= waits; ++n) {
    SCOPED_TRACE("wait " + std::to_string(n) + " of " + std::to_string(waits));
    bool any = false;
    for (unsigned long seed = 0; n + ends > waits && seed < 16; ++seed)
      any = any || is_noticed(n, seed);
    EXPECT_TRUE(any || n + ends <= waits) << "nobody noticed";
    for (const unsigned long seed : {0ul, 1ul, 5ul})
      EXPECT_TRUE(n + ends > waits || is_noticed(n, seed)) << "nobody noticed, seed " << seed;
  }
}

/// Mutation: every interleaving but those of one stream notices.
TEST(CudaStreams, AWaitThatIsLeftOutIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  expect_every_wait_is_needed(three_branches, on_cuda(4, false), 5, 1);
}

TEST(CudaStreams, AWaitForACopyThatIsLeftOutIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  expect_every_wait_is_needed(chain, on_cuda(1, false), 4, 1);
  expect_every_wait_is_needed(chain, on_cuda(2, false), 4, 1);
}

TEST(CudaStreams, AWaitForACopyBesideGraphsThatIsLeftOutIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const Variable split("HEDDLE_GRAPH_SPLIT_OPS", "matmul");
  expect_every_wait_is_needed(chain, on_cuda(1, true), 4, 1);
}

TEST(CudaStreams, CopiesBesideStepsGiveTheSameBitsInEveryInterleaving) {
  Engine one(chain, on_cuda(1, true));
  const std::vector<Tensor> want = one.run(inputs());
  for (const auto& [options, split] :
       {std::pair{on_cuda(1, false), ""}, {on_cuda(3, false), ""}, {on_cuda(1, true), "matmul"}}) {
    const Variable ops("HEDDLE_GRAPH_SPLIT_OPS", split);
    Engine engine(chain, options);
    for (unsigned long seed = 0; seed < 30; ++seed) {
      SCOPED_TRACE(seed);
      interleave(seed);
      std::vector<Tensor> got = {Tensor::empty(f32, {6, 6}), Tensor::empty(f32, {6, 6})};
      engine.run_into(inputs(), got);
      for (std::size_t k = 0; k < want.size(); ++k)
        ASSERT_EQ(got[k].to_doubles(), want[k].to_doubles());
    }
  }
  interleave(0);
}

}  // namespace
}  // namespace heddle::testing
