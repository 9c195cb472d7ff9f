// Every entry point of the driver and of NVRTC fails once, at each of its call sites of a run; and what
// comes of errors that a context does not survive.
#include <gmock/gmock.h>
#include <map>

#include "engine/cuda_runtime.h"
#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kLaunchFailed = 719;

/// Two streams, a parameter, a state and a loop: every kind of step.
std::vector<Tensor> callable(const Tensor& state, const Tensor& x, const Tensor& weight) {
  const Tensor a = softmax(matmul(x, weight), -1);
  const Tensor b = sum(exp(x), {0});
  assign(state, state + b);
  const Tensor looped = while_loop(
      std::vector<Tensor>{a},
      [](const std::vector<Tensor>& s) { return greater(sum(s[0]), Tensor::scalar(f32, 1)); },
      [](const std::vector<Tensor>& s) { return std::vector<Tensor>{s[0] * 0.25}; })[0];
  return {looped, cumsum(b, 0)};
}

/// A run in an engine of its own, on a device opened for it.
class Scenario {
 public:
  Scenario() : weight_(counted(f32, {6, 5})) {}

  std::vector<std::vector<double>> run() const {
    const Tensor weight = weight_;
    EngineOptions options = on_cuda(0, false);
    options.disk_cache = false;  // NVRTC's functions fail too
    Engine engine(
        [weight](const Tensor& state, const Tensor& x) { return callable(state, x, weight); },
        options);
    Tensor state = counted(f32, {6}, 2);
    const std::vector<Tensor> outputs = engine.run({state, counted(f32, {4, 6})});
    std::vector<std::vector<double>> values = {state.to_doubles()};
    for (const Tensor& output : outputs) values.push_back(output.to_doubles());
    return values;
  }

 private:
  Tensor weight_;
};

TEST(CudaFailure, EveryCallFailsOnceAndTheNextRunIsRight) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const Scenario scenario;
  const auto want = scenario.run();
  control().fail(0, 0);
  ASSERT_EQ(scenario.run(), want);
  const unsigned long calls = control().calls();
  EXPECT_GT(calls, 100u);
  std::map<std::string, int> failed;
  std::map<std::string, int> survived;
  control().leaked();
  for (unsigned long n = 1; n <= calls; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    const int error = n % 2 == 0 ? kOutOfMemory : kInvalidValue;
    control().fail(n, error);
    bool threw = false;
    try {
      EXPECT_EQ(scenario.run(), want) << control().failed();
    } catch (const DeviceLost& lost) {
      ADD_FAILURE() << "the context is not lost: " << lost.what();
    } catch (const Error& typed) {
      threw = true;
      EXPECT_THAT(std::string(typed.what()), Not(IsEmpty()));
    }
    const std::string function = control().failed();
    SCOPED_TRACE(function);
    ++(threw ? failed : survived)[function];
    control().fail(0, 0);
    EXPECT_EQ(control().live(), 0u);
    EXPECT_EQ(control().leaked(), 0u);
    ASSERT_EQ(scenario.run(), want);
  }
  // Calls whose failure must be seen.
  for (const char* function : {"cuInit",
                               "cuDriverGetVersion",
                               "cuDeviceGetCount",
                               "cuDeviceGet",
                               "cuDeviceGetName",
                               "cuDeviceTotalMem",
                               "cuDeviceGetAttribute",
                               "cuDevicePrimaryCtxRetain",
                               "cuMemAlloc",
                               "cuMemHostAlloc",
                               "cuMemcpyHtoDAsync",
                               "cuMemcpyDtoHAsync",
                               "cuMemsetD8Async",
                               "cuStreamCreate",
                               "cuStreamSynchronize",
                               "cuStreamWaitEvent",
                               "cuEventCreate",
                               "cuEventRecord",
                               "cuLaunchKernel",
                               "nvrtcVersion",
                               "nvrtcGetNumSupportedArchs",
                               "nvrtcGetSupportedArchs"}) {
    EXPECT_GT(failed[function], 0) << function;
    // A second try after giving back what is cached may get the memory.
    if (!std::string_view(function).ends_with("Alloc")) {
      EXPECT_EQ(survived[function], 0) << function;
    }
  }
}

TEST(CudaFailure, AFatalErrorAnywhereEndsInDeviceLostAndANewEngineWorks) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const Scenario scenario;
  const auto want = scenario.run();
  control().fail(0, 0);
  scenario.run();
  const unsigned long calls = control().calls();
  for (unsigned long n = 1; n <= calls; n += 7) {
    SCOPED_TRACE("call " + std::to_string(n));
    control().fail(n, kLaunchFailed);
    try {
      scenario.run();
    } catch (const Error&) {
    }
    control().fail(0, 0);
    ASSERT_EQ(scenario.run(), want) << "a new engine on a fresh context";
  }
}

TEST(CudaFailure, ALostDeviceStaysLostUntilTheEngineIsMadeAnew) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto f = [](const Tensor& x) { return x * 2.0f; };
  auto old = std::make_unique<Engine>(f, on_cuda(0, false));
  const Tensor x = counted(f32, {4});
  const Tensor result = old->run({x})[0];
  control().fail(0, 0);
  old->run({x});
  const unsigned long calls = control().calls();
  control().fail(calls / 2, kLaunchFailed);
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
