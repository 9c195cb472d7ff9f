// What comes of errors that a context does not survive, and of states when a run fails.
#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

constexpr int kInvalidValue = 1;
constexpr int kLaunchFailed = 719;

TEST(CudaFailure, ALostDeviceStaysLostUntilTheEngineIsMadeAnew) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto f = [](const Tensor& x) { return x * 2.0f; };
  auto old = std::make_unique<Engine>(f, on_cuda(0, false));
  const Tensor x = counted(f32, {4});
  const Tensor result = old->run({x})[0];
  control().fail_call_of("cuLaunchKernel", 1, kLaunchFailed);
  EXPECT_THROW(old->run({x}), DeviceLost);
  control().fail(0, 0);
  for (int k = 0; k < 3; ++k) EXPECT_THROW(old->run({x}), DeviceLost);
  EXPECT_THROW(result.to_doubles(), DeviceLost);
  EXPECT_THROW(old->run({result}), DeviceLost);
  EXPECT_EQ(control().calls(), 0u) << "a lost context is not touched";

  Engine fresh(f, on_cuda());
  EXPECT_EQ(fresh.run({x})[0].to_doubles(), (std::vector<double>{-2, -0.75, 0.5, 1.75}));
  EXPECT_THROW(old->run({x}), DeviceLost) << "the old engine is not revived";
  EXPECT_THROW(fresh.run({result}), DeviceLost) << "nor are its tensors";
  old.reset();
  EXPECT_EQ(fresh.run({x})[0].to_doubles()[0], -2);
}

TEST(CudaFailure, LeavesStatesAsTheyWereWhenARunFails) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Engine engine(
      [](const Tensor& state) {
        assign(state, state + 1.0f);
        return sum(state, {0});
      },
      on_cuda());
  const std::vector<double> before = {1, 2, 3};
  const auto make = [] { return Tensor::of<double>({1, 2, 3}, {3}); };
  engine.run({make()});
  control().fail(0, 0);
  engine.run({make()});
  const unsigned long calls = control().calls();
  for (unsigned long n = 1; n <= calls; ++n) {
    const Tensor state = make();
    control().fail(n, kInvalidValue);
    bool threw = false;
    try {
      engine.run({state});
    } catch (const Error&) {
      threw = true;
    }
    SCOPED_TRACE(control().failed());
    control().fail(0, 0);
    EXPECT_EQ(state.to_doubles(), threw ? before : (std::vector<double>{2, 3, 4}));
  }
}

}  // namespace
}  // namespace heddle::testing
