// Custom ops flagged capturable are nodes of the plan's graphs of the CUDA device: what their function queues is captured, and
// captured again for other addresses and sizes.
#include <atomic>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <set>
#include <thread>

#include "tests/cuda/support.h"
#include "tests/support/error_text.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kScaleText = R"(
extern "C" __global__ void scale(const float* x, float* y, float by, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = by * x[i];
})";

std::atomic<int> calls{0};

void scale_on_cpu(const KernelCall& call) {
  for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
    call.results[0].as<float>()[k] = 6 * call.tensor(0).as<const float>()[k];
}

/// Times 6 in two launches, by way of the workspace.
void scale_on_cuda(const KernelCall& call, void* stream) {
  static const CudaText text(kScaleText, "scale");
  ++calls;
  const long long n = call.tensor(0).count();
  auto* between = static_cast<float*>(call.workspace);
  const CudaText::Shape shape{.blocks = (n + 63) / 64, .threads = 64};
  text.launch(call, stream, shape, call.tensor(0).as<const float>(), between, 2.0f, n);
  text.launch(call, stream, shape, static_cast<const float*>(between), call.results[0].as<float>(),
              3.0f, n);
}

RegisteredOp scaling(const std::string& name, bool capturable) {
  return register_op(
      {.schema = name + "(Tensor x) -> Tensor",
       .shape = like_first,
       .cpu = scale_on_cpu,
       .workspace_bytes = [](const KernelCall& call) { return call.tensor(0).count() * 4; },
       // Elements: none to do where there are none.
       .extent = [](const KernelCall& call) { return call.tensor(0).count(); },
       .cuda = scale_on_cuda,
       .capturable = capturable});
}

const RegisteredOp& captured() {
  static const RegisteredOp op = scaling("cuda_capture::scale", true);
  return op;
}

/// Kernels on several streams around the op.
Tensor around(const Tensor& x) {
  const Tensor a = cumsum(x, 0);
  const Tensor b = captured()(a)[0];
  return cumsum(b, 0) + cumsum(exp(x * 0.01f), 0) * captured()(x)[0];
}

std::string parts_of(Engine& engine, const std::vector<Tensor>& inputs) {
  std::string text;
  const Json plan = Json::parse(engine.plan_json(inputs));
  for (const auto& part : plan["captures"]) {
    text += text.empty() ? "" : " | ";
    text += part["captured"].get<bool>() ? "graph of " + std::to_string(part["steps"].size())
                                         : part["reason"].get<std::string>();
  }
  return text;
}

// One graph holds everything, and the function is called when it is made, not when it is launched.
TEST(CudaCustomCapture, IsANodeOfTheGraph) {
  Engine engine(around, on_cuda(4, true));
  Engine reference(around, {.device = Device::reference()});
  const std::vector<Tensor> inputs{counted(f32, {70})};
  const Tensor want = reference.run(inputs)[0];
  EXPECT_EQ(parts_of(engine, inputs),
            "graph of " + std::to_string(Json::parse(engine.plan_json(inputs))["steps"].size()));
  calls = 0;
  for (unsigned long seed = 0; seed < 8; ++seed) {
    interleave(seed);
    expect_near(engine.run(inputs)[0], want, 1e-4);
  }
  interleave(0);
  EXPECT_EQ(calls, 4) << "two steps: in the first call, and when the graph is made";
  EXPECT_EQ(engine.stats().graphs, 1u);
  EXPECT_EQ(engine.stats().graph_launches, 7u);
}

/// `op` parts the graph, and its function runs in each call.
void expect_called_at_each_run(const RegisteredOp& op) {
  Engine engine([&](const Tensor& x) { return cumsum(op(cumsum(x, 0))[0], 0); }, on_cuda(2, true));
  const std::vector<Tensor> inputs{counted(f32, {5})};
  EXPECT_EQ(parts_of(engine, inputs),
            "graph of 1 | holds an op that is not capturable | graph of 1");
  calls = 0;
  for (int k = 0; k < 5; ++k) engine.run(inputs);
  EXPECT_EQ(calls, 5);
}

// So does what has effects, whatever it says: a call is one of them.
TEST(CudaCustomCapture, WhatIsNotPureIsCalledAtEachRun) {
  static const RegisteredOp op = register_op(
      {.schema = "cuda_capture::effect(Tensor x) -> Tensor",
       .shape = like_first,
       .cpu = scale_on_cpu,
       .workspace_bytes = [](const KernelCall& call) { return call.tensor(0).count() * 4; },
       .cuda = scale_on_cuda,
       .pure = false,
       .capturable = true});
  expect_called_at_each_run(op);
}

// What is not flagged is called at each run, and parts the graph.
TEST(CudaCustomCapture, WhatIsNotFlaggedStaysASplit) {
  static const RegisteredOp op = scaling("cuda_capture::not_flagged", false);
  expect_called_at_each_run(op);
}

// Other sizes, of other workspaces; none at all, where nothing is queued; and outputs at other addresses.
TEST(CudaCustomCapture, IsCapturedAnewForOtherSizesAndAddresses) {
  const auto f = [](const Tensor& x) { return captured()(cumsum(x, 0))[0]; };
  Engine engine(f, on_cuda(2, true));
  Engine reference(f, {.device = Device::reference()});
  std::vector<Tensor> kept;  // so that the next output lies elsewhere
  for (const std::int64_t n : {3, 3, 200, 0, 0, 65, 3, 0, 1}) {
    SCOPED_TRACE(n);
    const std::vector<Tensor> inputs{counted(f32, {n}, static_cast<int>(n)).to(cuda_device())};
    kept.push_back(engine.run(inputs)[0]);
    expect_near(kept.back(), reference.run({counted(f32, {n}, static_cast<int>(n))})[0], 1e-4);
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.stats().graphs, 5u)
      << "one each time that something is queued and was not before, or the reverse";
  EXPECT_GE(engine.stats().graph_updates, 3u);
}

// Attributes that come from sizes are part of what is captured.
TEST(CudaCustomCapture, SymbolicAttributesAreThoseOfTheCall) {
  static const RegisteredOp op = register_op(
      {.schema = "cuda_capture::by_size(Tensor x, SymInt by) -> Tensor",
       .shape = like_first,
       .cpu =
           [](const KernelCall& call) {
             for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
               call.results[0].as<float>()[k] =
                   static_cast<float>(call.integer("by")) * call.tensor(0).as<const float>()[k];
           },
       .cuda =
           [](const KernelCall& call, void* stream) {
             static const CudaText text(kScaleText, "scale");
             text.launch(call, stream, {.threads = 64}, call.tensor(0).as<const float>(),
                         call.results[0].as<float>(), static_cast<float>(call.integer("by")),
                         static_cast<long long>(call.tensor(0).count()));
           }});
  Engine engine(
      [](const Tensor& x, const Tensor& y) { return op(cumsum(x, 0), y.size(0))[0] + sum(y); },
      on_cuda(2, true));
  const Tensor x = Tensor::of<float>({1, 1, 1}, {3}).to(cuda_device());
  for (const std::int64_t by : {2, 2, 5, 2, 7})
    EXPECT_THAT(engine.run({x, Tensor::zeros(f32, {by})})[0].to_doubles(),
                ElementsAre(by, 2 * by, 3 * by));
}

// What it throws while it is captured ends the call as ever, and leaves no capture behind.
TEST(CudaCustomCapture, SaysWhatItsFunctionThrewWhileItWasCaptured) {
  static bool throws = false;
  static const RegisteredOp op =
      register_op({.schema = "cuda_capture::throws(Tensor x) -> Tensor",
                   .shape = like_first,
                   .cpu = [](const KernelCall&) {},
                   .cuda =
                       [](const KernelCall& call, void* stream) {
                         static const CudaText text(kScaleText, "scale");
                         text.launch(call, stream, {.threads = 64},
                                     call.tensor(0).as<const float>(), call.results[0].as<float>(),
                                     2.0f, static_cast<long long>(call.tensor(0).count()));
                         if (throws) throw std::runtime_error("the moon is full");
                       }});
  Engine engine([](const Tensor& x) { return op(cumsum(x, 0))[0] + 1.0f; }, on_cuda(2, true));
  const auto run = [&](std::int64_t n) {
    return engine.run({Tensor::full(f32, {n}, 1)})[0].to_doubles();
  };
  EXPECT_THAT(run(2), ElementsAre(3, 5));
  for (const std::int64_t n : {2, 3}) {
    throws = true;
    const std::string text = text_of<CustomOpError>([&] { run(n); });
    EXPECT_THAT(text, HasSubstr("cuda_capture::throws: the kernel failed"));
    EXPECT_THAT(text, HasSubstr("got the moon is full"));
    throws = false;
    EXPECT_THAT(run(2), ElementsAre(3, 5));
    EXPECT_THAT(run(2), ElementsAre(3, 5)) << "a graph is made";
  }
}

// Work that cannot be captured, a wait for the stream, is told with the op's name; without the flag it would do.
TEST(CudaCustomCapture, WhatCannotBeCapturedIsToldByName) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  static int waits = 0;
  static const RegisteredOp op = register_op(
      {.schema = "cuda_capture::waits(Tensor x) -> Tensor",
       .shape = like_first,
       .cpu = [](const KernelCall&) {},
       .cuda =
           [](const KernelCall& call, void* stream) {
             static const CudaText text(kScaleText, "scale");
             using Synchronize = int (*)(void*);
             static const auto synchronize = reinterpret_cast<Synchronize>(::dlsym(
                 ::dlopen(test::driver_library().c_str(), RTLD_NOW), "cuStreamSynchronize"));
             text.launch(call, stream, {.threads = 64}, call.tensor(0).as<const float>(),
                         call.results[0].as<float>(), 2.0f,
                         static_cast<long long>(call.tensor(0).count()));
             if (waits-- > 0) synchronize(stream);
           }});
  Engine engine([](const Tensor& x) { return op(cumsum(x, 0))[0] + 1.0f; }, on_cuda(2, true));
  const std::vector<Tensor> inputs{Tensor::full(f32, {2}, 1)};
  waits = 2;
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(3, 5)) << "not captured";
  const std::string text = text_of<CustomOpError>([&] { engine.run(inputs); });
  EXPECT_THAT(text, HasSubstr("cuda_capture::waits: its work cannot be captured"));
  EXPECT_THAT(text, HasSubstr("cuStreamEndCapture"));
  for (int k = 0; k < 3; ++k) EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(3, 5));
}

TEST(CudaCustomCapture, ManyCallsAtOnce) {
  Engine engine(around, on_cuda(3, true));
  Engine reference(around, {.device = Device::reference()});
  std::vector<Tensor> want;
  for (std::int64_t n = 0; n < 4; ++n) want.push_back(reference.run({counted(f32, {20 + n})})[0]);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t k = 0; k < 8; ++k) {
        const std::int64_t n = (k + t) % 4;
        expect_near(engine.run({counted(f32, {20 + n})})[0], want[static_cast<std::size_t>(n)],
                    1e-4);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace heddle::testing
