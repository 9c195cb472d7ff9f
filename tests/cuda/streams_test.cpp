// Work on several streams: right in every interleaving, and the simulator objects when a wait for an event
// is left out.
#include <gmock/gmock.h>

#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;

/// Three branches that read what the host sent, and a result that needs them all: kernels that do not
/// fuse into one.
std::vector<Tensor> branches(const Tensor& x, const Tensor& y, const Tensor& z) {
  const Tensor a = matmul(softmax(matmul(x, y), -1), x);
  const Tensor b = matmul(softmax(matmul(y, z), -1), y);
  const Tensor c = matmul(softmax(matmul(z, x), -1), z);
  return {matmul(matmul(a, b), c), cumsum(b, 0)};
}

std::vector<Tensor> inputs() {
  return {counted(f32, {6, 6}), counted(f32, {6, 6}, 1), counted(f32, {6, 6}, 2)};
}

TEST(CudaStreams, EveryInterleavingGivesTheSameBits) {
  Engine one(branches, on_cuda(1, false));
  Engine many(branches, on_cuda(4, false));
  const std::vector<Tensor> want = one.run(inputs());
  Engine reference(branches, {.device = Device::reference()});
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
  Engine engine(branches, on_cuda(1, false));
  control().skip_wait(0);
  engine.run(inputs());
  EXPECT_EQ(control().waits(), 0u);
}

/// Mutation: each wait in turn is left out; every interleaving but those of one stream notices.
TEST(CudaStreams, AWaitThatIsLeftOutIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  unsigned long waits = 0;
  {
    Engine engine(branches, on_cuda(4, false));
    control().skip_wait(0);
    std::vector<Tensor> outputs = {Tensor::empty(f32, {6, 6}), Tensor::empty(f32, {6, 6})};
    engine.run_into(inputs(), outputs);
    waits = control().waits();
  }
  ASSERT_GE(waits, 5u);
  for (unsigned long n = 1; n <= waits; ++n) {
    for (const unsigned long seed : {0ul, 1ul, 5ul}) {
      SCOPED_TRACE("wait " + std::to_string(n) + " of " + std::to_string(waits) + ", seed " +
                   std::to_string(seed));
      Engine engine(branches, on_cuda(4, false));
      std::vector<Tensor> outputs = {Tensor::empty(f32, {6, 6}), Tensor::empty(f32, {6, 6})};
      engine.run_into(inputs(), outputs);
      interleave(seed);
      control().skip_wait(n);
      std::string error;
      try {
        engine.run_into(inputs(), outputs);
        engine.run_into(inputs(), outputs);
      } catch (const DeviceLost& lost) {
        error = lost.what();
      }
      control().skip_wait(0);
      interleave(0);
      EXPECT_NE(error, "") << "nobody noticed";
      EXPECT_THAT(std::string(control().problem()), HasSubstr("neither waits for the other"));
    }
  }
}

}  // namespace
}  // namespace heddle::testing
