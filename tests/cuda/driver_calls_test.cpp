// What a call that was made before asks of the driver: on a stream of the caller's, with tensors on the device.
#include <gmock/gmock.h>

#include "engine/cuda_runtime.h"
#include "tests/cuda/recorded.h"

namespace heddle::testing {
namespace {

class CudaDriverCalls : public ::testing::Test {
 protected:
  static constexpr int kUnderWay = 4;  ///< calls that an engine leaves so, at most

  void SetUp() override {
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
    runtime_ = engine::CudaRuntime::get(cuda_device());
    stream_ = runtime_->device().make_stream();
  }

  template <typename F>
  void make(F f, const std::vector<Tensor>& inputs, std::optional<bool> graphs = {}) {
    EngineOptions options = on_cuda(4, graphs);
    options.stream = stream_->native();
    engine_ = std::make_unique<Engine>(f, options);
    for (const Tensor& input : inputs) inputs_.push_back(input.to(cuda_device()));
    outputs_ = engine_->run(inputs_);
    for (int k = 0; k < 4 * kUnderWay; ++k) call();
    stream_->synchronize();
  }
  void call() { engine_->run_into(inputs_, outputs_); }

  /// Lines of a function and how often `action` called it.
  template <typename F>
  std::string called(F&& action) {
    control().fail(0, 0);
    action();
    return std::string("\n") + control().called();
  }
  std::string called() {
    return called([&] { call(); });
  }

  engine::CudaRuntimePtr runtime_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<Engine> engine_;
  std::vector<Tensor> inputs_, outputs_;
};

/// Of a call that finds a context which is known to be idle.
constexpr const char* kLaunchAlone = R"(
cuCtxPopCurrent 1
cuCtxPushCurrent 1
cuEventRecord 1
cuGraphLaunch 1
cuStreamIsCapturing 1
)";

/// Of one that asks whether the newest call is done, with the thread's mode of captures around the question.
constexpr const char* kAskedOnce = R"(
cuCtxPopCurrent 1
cuCtxPushCurrent 1
cuEventQuery 1
cuEventRecord 1
cuGraphLaunch 1
cuStreamIsCapturing 1
cuThreadExchangeStreamCaptureMode 2
)";

TEST_F(CudaDriverCalls, OneKernelIsAGraph) {
  make([](const Tensor& x) { return x * 2.0f; }, {counted(f32, {64})});
  EXPECT_EQ(recorded([&] { call(); }), R"(
s0 graph
  0 launch mul
s0 record e0
)");
}

TEST_F(CudaDriverCalls, OneQuestionIsForAllCallsThatTheDeviceHasDone) {
  make(three_branches, {counted(f32, {6, 6}), counted(f32, {6, 6}, 1), counted(f32, {6, 6}, 2)});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(called(), kAskedOnce);
    for (int k = 1; k < kUnderWay; ++k) EXPECT_EQ(called(), kLaunchAlone) << k;
    stream_->synchronize();  // which the engine does not know
  }
  EXPECT_EQ(engine_->stats().graph_updates, 0u);
}

TEST_F(CudaDriverCalls, NothingIsAskedWhereSomebodyHasWaitedForResults) {
  make(three_branches, {counted(f32, {6, 6}), counted(f32, {6, 6}, 1), counted(f32, {6, 6}, 2)});
  outputs_[0].wait();
  for (int k = 0; k < 3 * kUnderWay; ++k) {
    EXPECT_EQ(called(), kLaunchAlone) << k;
    if (k % kUnderWay == kUnderWay - 1) outputs_[0].wait();
  }
}

TEST_F(CudaDriverCalls, TheHostWaitsForTheFirstOfThoseUnderWay) {
  make([](const Tensor& x) { return x * 2.0f; }, {counted(f32, {64})});
  for (int k = 0; k < kUnderWay; ++k) call();
  for (int k = 0; k < kUnderWay; ++k) {
    EXPECT_EQ(called(), R"(
cuCtxPopCurrent 1
cuCtxPushCurrent 1
cuEventQuery 1
cuEventRecord 1
cuEventSynchronize 1
cuGraphLaunch 1
cuStreamIsCapturing 1
cuThreadExchangeStreamCaptureMode 4
)") << k;
  }
}

TEST_F(CudaDriverCalls, NewOutputsLieWhereThoseOfEarlierCallsLay) {
  make(three_branches, {counted(f32, {6, 6}), counted(f32, {6, 6}, 1), counted(f32, {6, 6}, 2)});
  outputs_.clear();
  const auto run = [&] { engine_->run(inputs_); };
  for (int k = 0; k < 4 * kUnderWay; ++k) run();
  const std::uint64_t updates = engine_->stats().graph_updates;
  for (int round = 0; round < 3; ++round) {
    stream_->synchronize();
    EXPECT_EQ(called(run), kAskedOnce);
    for (int k = 1; k < kUnderWay; ++k) EXPECT_EQ(called(run), kLaunchAlone) << k;
  }
  EXPECT_EQ(engine_->stats().graph_updates, updates);
}

/// The kernels that read it, and no others.
TEST_F(CudaDriverCalls, AnInputThatMovedUpdatesItsKernels) {
  make([](const Tensor& x, const Tensor& y) { return matmul(softmax(x, -1), y); },
       {counted(f32, {6, 6}), counted(f32, {6, 6}, 1)});
  outputs_[0].wait();
  const Tensor before = inputs_[0];
  for (const Tensor& moved : {counted(f32, {6, 6}, 2).to(cuda_device()), before}) {
    outputs_[0].wait();
    inputs_[0] = moved;
    EXPECT_EQ(called(), R"(
cuCtxPopCurrent 1
cuCtxPushCurrent 1
cuEventRecord 1
cuGraphExecKernelNodeSetParams 1
cuGraphLaunch 1
cuStreamIsCapturing 1
)");
  }
}

}  // namespace
}  // namespace heddle::testing
