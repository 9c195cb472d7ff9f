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

  /// Lines of a function and how often it was called.
  std::string called() {
    control().fail(0, 0);
    call();
    return std::string("\n") + control().called();
  }

  engine::CudaRuntimePtr runtime_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<Engine> engine_;
  std::vector<Tensor> inputs_, outputs_;
};

TEST_F(CudaDriverCalls, OneKernelIsAGraph) {
  make([](const Tensor& x) { return x * 2.0f; }, {counted(f32, {64})});
  EXPECT_EQ(recorded([&] { call(); }), R"(
synchronize e0
s0 graph
  0 launch mul
s0 record e1
)");
  stream_->synchronize();
  // The wait, with the thread's mode of captures around it, is for the first of the calls that were left under way.
  for (int k = 0; k < kUnderWay; ++k) {
    EXPECT_EQ(called(), R"(
cuCtxPopCurrent 1
cuCtxPushCurrent 1
cuEventRecord 1
cuEventSynchronize 1
cuGraphLaunch 1
cuStreamIsCapturing 1
cuThreadExchangeStreamCaptureMode 2
)");
    stream_->synchronize();
  }
}

TEST_F(CudaDriverCalls, AGraphOfManyIsLaunchedWithoutUpdates) {
  make(three_branches, {counted(f32, {6, 6}), counted(f32, {6, 6}, 1), counted(f32, {6, 6}, 2)});
  EXPECT_EQ(called(), R"(
cuCtxPopCurrent 1
cuCtxPushCurrent 1
cuEventRecord 1
cuEventSynchronize 1
cuGraphLaunch 1
cuStreamIsCapturing 1
cuThreadExchangeStreamCaptureMode 2
)");
  EXPECT_EQ(engine_->stats().graph_updates, 0u);
}

}  // namespace
}  // namespace heddle::testing
