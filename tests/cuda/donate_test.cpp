// Inputs that calls give away, on the CUDA device.
#include <gmock/gmock.h>

#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

EngineOptions donating(Donations names, bool graphs = true) {
  EngineOptions options = on_cuda(4, graphs);
  options.donate = std::move(names);
  return options;
}

Tensor on_device(const Tensor& tensor) { return tensor.to(cuda_device()); }

Tensor put(const Tensor& x, const Tensor& values, const Tensor& at) {
  const Tensor operands[] = {x, values, at};
  return apply("index_put", operands)[0];
}

// Several readers on several streams, then a scatter that overwrites what they read: launched alone and as a graph.
TEST(CudaDonate, UpdatesOverwriteItWhenItsReadersAreDone) {
  const auto f = [](const Tensor& x, const Tensor& v, const Tensor& at) {
    const Tensor before = cumsum(exp(x), 0) + cumsum(x * 2.0f, 0);
    return cumsum(put(x, v, at), 0) + before;
  };
  for (const bool graphs : {false, true}) {
    Engine engine(f, donating({"input0"}, graphs));
    Engine reference(f, {.device = Device::reference()});
    const std::vector<Tensor> others{Tensor::of<float>({10}, {1}),
                                     Tensor::of<std::int64_t>({1}, {1})};
    const Tensor want = reference.run({counted(f32, {40}), others[0], others[1]})[0];
    for (unsigned long seed = 0; seed < 8; ++seed) {
      interleave(seed);
      const Tensor x = on_device(counted(f32, {40}));
      expect_near(engine.run({x, others[0], others[1]})[0], want, 1e-4);
      EXPECT_EQ(x.to_doubles()[1], 10) << "it was overwritten where it lies";
    }
    interleave(0);
    EXPECT_EQ(engine.stats().in_place, 1u);
  }
}

// A cache of a fixed length goes from call to call where it lies; one of the host's is brought to the device.
TEST(CudaDonate, ReturnedUpdatesOfWhatIsHandedOverLieInIt) {
  const auto step = [](const Tensor& cache, const Tensor& v, const Tensor& at) {
    const Tensor now = put(cache, v, at);
    return std::vector{sum(cumsum(now, 0), {0}), now};
  };
  for (const bool graphs : {false, true}) {
    Engine engine(step, donating({"input0"}, graphs));
    Engine reference(step, {.device = Device::reference()});
    for (unsigned long seed = 0; seed < 4; ++seed) {
      interleave(seed);
      Tensor cache = counted(f32, {40}), want_cache = counted(f32, {40});
      const void* place = nullptr;
      for (std::int64_t k = 0; k < 6; ++k) {
        const Tensor v = Tensor::of<float>({10}, {1}), at = Tensor::of<std::int64_t>({k}, {1});
        const std::vector<Tensor> want = reference.run({want_cache, v, at});
        std::vector<Tensor> inputs{std::move(cache), v, at};
        std::vector<Tensor> got = engine.run(std::move(inputs));
        EXPECT_FALSE(inputs[0].defined());
        expect_near(got[0], want[0], 1e-4);
        expect_near(got[1], want[1], 1e-4);
        cache = std::move(got[1]), want_cache = want[1];
        EXPECT_TRUE(k == 0 || std::as_const(cache).data() == place);
        place = std::as_const(cache).data();
      }
    }
    interleave(0);
    EXPECT_EQ(engine.stats().in_place, 1u);
  }
}

TEST(CudaDonate, RunIntoWhatIsUpdated) {
  const auto step = [](const Tensor& cache, const Tensor& v, const Tensor& at) {
    const Tensor now = put(cache, v, at);
    return std::vector{now, now * 2.0f};
  };
  Engine engine(step, donating({"input0"}));
  const Tensor v = Tensor::of<float>({10}, {1}), at = Tensor::of<std::int64_t>({1}, {1});
  for (const bool cache_there : {true, false})
    for (const bool outputs_there : {true, false}) {
      const auto made = [](bool there) {
        Tensor x = Tensor::full(f32, {3}, 1).clone();
        return there ? on_device(x) : x;
      };
      Tensor cache = made(cache_there);
      std::vector<Tensor> outputs{made(outputs_there), made(outputs_there)};
      engine.run_into(std::array{cache, v, at}, outputs);
      EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(1, 10, 1));
      EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(2, 20, 2));
      cache = made(cache_there);
      outputs = {cache, outputs[1]};
      engine.run_into(std::array{cache, v, at}, outputs);
      EXPECT_THAT(cache.to_doubles(), ElementsAre(1, 10, 1));
      outputs = {made(outputs_there), cache};  // where the update would lie
      engine.run_into(std::array{cache, v, at}, outputs);
      EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(1, 10, 1));
      EXPECT_THAT(cache.to_doubles(), ElementsAre(2, 20, 2));
    }
}

TEST(CudaDonate, RunIntoTheSameMemory) {
  Engine engine([](const Tensor& x) { return x * 2.0f + 1.0f; }, donating({"input0"}));
  for (const bool device : {true, false}) {
    Tensor x = Tensor::full(f32, {100}, 1);
    if (device) x = on_device(x);
    for (const double want : {3.0, 7.0, 15.0}) {
      engine.run_into(std::array{x}, std::span(&x, 1));
      EXPECT_THAT(x.to_doubles(), Each(want));
    }
  }
  EXPECT_EQ(engine.stats().copied_outputs, 0u);
}

// The first output is written before the second kernel has read the input.
TEST(CudaDonate, RunIntoMemoryThatIsStillRead) {
  Engine engine = parse_ir(
      "graph @main(%x: donated f32[4]) {\n  %a = cumsum(%x) {axis = 0}\n"
      "  %b = cumsum(%a) {axis = 0}\n  %c = add(%b, %x)\n  return %a, %c\n}\n",
      on_cuda(2));
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Tensor x = on_device(Tensor::of<float>({1, 2, 3, 4}, {4}));
    std::vector<Tensor> outputs{x, on_device(Tensor::zeros(f32, {4}))};
    engine.run_into(std::array{x}, outputs);
    EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(1, 3, 6, 10));
    EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(2, 6, 13, 24));
    EXPECT_EQ(engine.stats().copied_outputs, static_cast<std::uint64_t>(repeat + 1));
  }
}

TEST(CudaDonate, OutputsTakeOverMemoryThatIsHandedOver) {
  Engine engine([](const Tensor& x) { return x + 1.0f; }, donating({"input0"}));
  std::vector<Tensor> state{on_device(Tensor::zeros(f32, {4}))};
  const void* const memory = state[0].data();
  for (int k = 0; k < 4; ++k) {
    std::vector<Tensor> next = engine.run(std::move(state));
    EXPECT_FALSE(state[0].defined());
    state = std::move(next);
    EXPECT_EQ(state[0].data(), memory);
  }
  EXPECT_THAT(state[0].to_doubles(), Each(4));
}

TEST(CudaDonate, TracesTellAndOverwriteWhatIsGivenBack) {
  Engine engine = parse_ir(
      "graph @main(%x: donated f32[4]) {\n  %a = cumsum(%x) {axis = 0}\n"
      "  %b = cumsum(%a) {axis = 0}\n  return %b\n}\n",
      on_cuda());
  const Tensor x = on_device(Tensor::of<float>({1, 2, 3, 4}, {4}));
  std::vector<Tensor> outputs;
  const std::vector<RunEvent> events = engine.run_trace(std::array{x}, &outputs);
  EXPECT_EQ(events[2], (RunEvent{RunEvent::Kind::Free, 0, "x", 16}));
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(1, 4, 10, 20));
  EXPECT_TRUE(std::isnan(x.to_doubles()[0]));
}

}  // namespace
}  // namespace heddle::testing
