// Engines on the CUDA device: inputs and outputs in either memory, states, control flow,
// errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <thread>

#include "examples/transformer/encoder.h"

#include "engine/cuda_runtime.h"
#include "tests/cuda/support.h"
#include "tests/support/error_text.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor block(const Tensor& x, const Tensor& w) { return softmax(gelu(matmul(x, w)) + 1.0f, -1); }

TEST(CudaEngine, AgreesWithTheEvaluator) {
  expect_agrees(block, {counted(f32, {5, 24}), counted(f32, {24, 33}, 3)});
}

TEST(CudaEngine, SizesAreSymbolicAndOneCompileServesAll) {
  Engine engine(block, on_cuda());
  Engine reference(block, {.device = Device::reference()});
  for (const std::int64_t n : {1, 4, 40, 0}) {
    const std::vector<Tensor> inputs = {counted(f32, {n, 8}), counted(f32, {8, 20}, 1)};
    expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 1e-5);
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// A graph of all pools with these windows.
std::string pools(std::int64_t kernel, std::int64_t stride, std::int64_t high,
                  std::int64_t dilation, bool ceil) {
  const std::string attrs = fmt::format(
      "{{kernel = [{}], strides = [{}], pads_low = [0], pads_high = [{}], dilations = [{}], "
      "ceil_mode = {}}}\n",
      kernel, stride, high, dilation, ceil);
  return "graph @main(%x: f32[2, 3, s0]) {\n  %m = max_pool(%x) " + attrs +
         "  %i = max_pool_indices(%x) " + attrs + "  %a = avg_pool(%x) " + attrs +
         "  %s = reduce_sum(%m) {axes = [2]}\n  return %m, %i, %a, %s\n}\n";
}

// Of kernels that are longer than some inputs, which have no windows then: one compile on either device.
TEST(CudaEngine, PoolsWithoutWindows) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  for (const auto& [kernel, stride, high, dilation, ceil] : {std::tuple(4, 2, 1, 1, false),
                                                             {3, 1, 0, 1, false},
                                                             {4, 2, 0, 1, true},
                                                             {3, 3, 2, 2, false},
                                                             {3, 3, 2, 2, true},
                                                             {2, 5, 1, 1, true}}) {
    const std::string text = pools(kernel, stride, high, dilation, ceil);
    const std::int64_t extent = dilation * (kernel - 1) + 1;
    const std::int64_t least = extent - high - (ceil ? 2 * stride - 1 : stride);
    Engine reference = parse_ir(text, {.device = Device::reference()});
    for (const EngineOptions& options : {EngineOptions(), on_cuda()}) {
      Engine engine = parse_ir(text, options);
      // The largest first: it has windows, whatever the sizes are.
      for (std::int64_t n = extent + 2 * stride + 1; n >= std::max<std::int64_t>(least, 0); --n) {
        SCOPED_TRACE(text + std::to_string(n));
        const std::vector<Tensor> inputs = {counted(f32, {2, 3, n})};
        const std::vector<Tensor> got = engine.run(inputs);
        const std::vector<Tensor> want = reference.run(inputs);
        std::int64_t windows = 0;
        const std::int64_t over = n + high - extent;
        for (std::int64_t at = 0; at <= over + (ceil ? stride - 1 : 0); at += stride)
          windows += !ceil || at < n ? 1 : 0;
        EXPECT_EQ(got[1].sizes()[2], windows);
        for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-6);
      }
      EXPECT_EQ(engine.stats().compiles, 1u) << text;
    }
  }
}

TEST(CudaEngine, OutputsLieOnTheDeviceAndGoWhereTheyAreAskedTo) {
  Engine engine([](const Tensor& x) { return x * 2.0f; }, on_cuda());
  const Tensor out = engine.run({counted(f32, {4})})[0];
  EXPECT_EQ(out.device(), cuda_device());
  const Tensor host = out.to(Device::cpu());
  EXPECT_EQ(host.device(), Device::cpu());
  EXPECT_THAT(host.to_doubles(), ElementsAre(-2, -0.75, 0.5, 1.75));
  EXPECT_EQ(out.to(cuda_device()).data(), out.data()) << "it is there already";
  EXPECT_NE(out.clone().data(), out.data());
  EXPECT_EQ(out.clone().device(), cuda_device());
}

/// There is nothing that the index could be clamped to: nothing is read, and the device is not lost.
TEST(CudaEngine, IndicesIntoAnEmptyTableAreAnIndexError) {
  const auto table = [](std::int64_t rows) { return counted(f32, {rows, 3}).to(cuda_device()); };
  const auto indices = [](Sizes sizes) {
    return Tensor::full(i64, std::move(sizes), 0).to(cuda_device());
  };
  Engine rows = parse_ir(R"(graph @main(%x: f32[s0, 3], %at: i64[s1]) {
  %r = gather(%x, %at) {axis = 0}
  return %r
})",
                         on_cuda());
  EXPECT_THAT(text_of<IndexError>([&] { rows.run({table(0), indices({2})}); }),
              HasSubstr("gather: index out of range"));
  EXPECT_THAT(rows.run({table(1), indices({2})})[0].to_doubles(),
              ElementsAre(-1, -0.375, 0.25, -1, -0.375, 0.25));
  EXPECT_EQ(rows.run({table(0), indices({0})})[0].count(), 0);
  Engine tuples = parse_ir(R"(graph @main(%x: f32[s0, 3], %at: i64[s1, 1]) {
  %r = gather_nd(%x, %at)
  return %r
})",
                           on_cuda());
  EXPECT_THAT(text_of<IndexError>([&] { tuples.run({table(0), indices({2, 1})}); }),
              HasSubstr("gather_nd: index out of range"));
  EXPECT_THAT(tuples.run({table(1), indices({1, 1})})[0].to_doubles(),
              ElementsAre(-1, -0.375, 0.25));
}

TEST(CudaEngine, ParametersAreUpdatedFromEitherMemory) {
  const Tensor weights = counted(f32, {3});
  Engine engine([weights](const Tensor& x) { return x * exp(weights * 0.0f) * weights; },
                on_cuda());
  const Tensor ones = Tensor::full(f32, {3}, 1);
  engine.run({ones});
  const std::uint64_t compiled = engine.stats().kernels_compiled;
  engine.update_parameter(weights, Tensor::full(f32, {3}, 5));
  EXPECT_THAT(engine.run({ones})[0].to_doubles(), ElementsAre(5, 5, 5));
  engine.update_parameter(weights, Tensor::full(f32, {3}, 7).to(cuda_device()));
  EXPECT_THAT(engine.run({ones})[0].to_doubles(), ElementsAre(7, 7, 7));
  EXPECT_EQ(engine.stats().kernels_compiled, compiled);
}

TEST(CudaEngine, DeviceMemoryIsNotExported) {
  const Tensor x = counted(f32, {3}).to(cuda_device());
  EXPECT_EQ(text_of<DeviceError>([&] { to_dlpack(x); }),
            "to_dlpack: expected a tensor on cpu, got " + cuda_device().to_string());
}

TEST(CudaEngine, TakesTensorsOfTheDeviceAsTheyAre) {
  Engine engine([](const Tensor& x, const Tensor& y) { return x + y; }, on_cuda());
  const Tensor x = counted(f32, {3}).to(cuda_device());
  const Tensor y = counted(f32, {3}, 2);
  EXPECT_THAT(engine.run({x, y})[0].to_doubles(), ElementsAre(-1.75, -0.5, 0.75));
  EXPECT_THAT(engine.run({y, x})[0].to_doubles(), ElementsAre(-1.75, -0.5, 0.75));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(CudaEngine, RunsIntoTheCallersTensorsInEitherMemory) {
  Engine engine([](const Tensor& x) { return std::vector<Tensor>{x + 1.0f, sum(x, {0})}; },
                on_cuda());
  std::vector<Tensor> outputs = {Tensor::empty(f32, {4}), Tensor::empty(f32, {}, cuda_device())};
  const void* address = outputs[1].data();
  engine.run_into(std::vector{counted(f32, {4})}, outputs);
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(0, 0.625, 1.25, 1.875));
  EXPECT_EQ(outputs[1].item(), -0.25);
  EXPECT_EQ(outputs[1].data(), address);
}

TEST(CudaEngine, ReadsStridedInputsOfTheHost) {
  std::vector<float> data(24);
  for (std::size_t k = 0; k < data.size(); ++k) data[k] = static_cast<float>(k);
  const Tensor strided = Tensor::wrap_strided(data.data(), f32, {4, 3}, {1, 8});
  expect_agrees([](const Tensor& x) { return x * 2.0f + sum(x, {0}); }, {strided});
}

TEST(CudaEngine, WritesStatesInPlaceWhereverTheyAre) {
  Engine engine(
      [](const Tensor& cache, const Tensor& x) {
        assign(cache, cache + x);
        return sum(cache, {0});
      },
      on_cuda());
  const Tensor x = Tensor::full(f32, {2}, 10);
  Tensor on_device = Tensor::of<float>({1, 2}, {2}).to(cuda_device());
  const void* address = on_device.data();
  EXPECT_EQ(engine.run({on_device, x})[0].item(), 23);
  EXPECT_THAT(on_device.to_doubles(), ElementsAre(11, 12));
  EXPECT_EQ(on_device.data(), address);

  std::vector<float> memory = {1, 100, 2, 200};
  const Tensor strided = Tensor::wrap_strided(memory.data(), f32, {2}, {2});
  EXPECT_EQ(engine.run({strided, x})[0].item(), 23);
  EXPECT_THAT(memory, ElementsAre(11, 100, 12, 200)) << "what lies between is not touched";
}

TEST(CudaEngine, WritesRowsOfAStateAndNotWhatLiesBetween) {
  Engine engine(
      [](const Tensor& cache, const Tensor& x) {
        assign(cache, cache + x);
        return x;
      },
      on_cuda());
  std::vector<float> memory = {1, 2, 3, 100, 4, 5, 6, 200};
  const Tensor rows = Tensor::wrap_strided(memory.data(), f32, {2, 3}, {4, 1});
  engine.run({rows, Tensor::full(f32, {3}, 10)});
  EXPECT_THAT(memory, ElementsAre(11, 12, 13, 100, 14, 15, 16, 200));
  std::vector<float> turned = {1, 2, 3, 4, 5, 6};
  engine.run(
      {Tensor::wrap_strided(turned.data(), f32, {2, 3}, {1, 2}), Tensor::full(f32, {3}, 10)});
  EXPECT_THAT(turned, ElementsAre(11, 12, 13, 14, 15, 16));
}

TEST(CudaEngine, UploadsParametersOnceForAllExecutables) {
  const Tensor table = counted(f32, {300, 40});
  const auto f = [table](const Tensor& x) { return matmul(x, table); };
  const auto runtime = engine::CudaRuntime::get(cuda_device());
  const auto in_use = [&] { return runtime->pool().stats().in_use_bytes; };
  Engine first(f, on_cuda());
  const std::size_t before = in_use();
  first.run({counted(f32, {2, 300})});
  const std::size_t one = in_use() - before;
  EXPECT_GE(one, 300u * 40 * 4);
  first.run({counted(f32, {1, 300})});
  EXPECT_LT(in_use() - before, one + 300 * 40 * 4) << "the second executable shares them";
}

TEST(CudaEngine, RunsBranchesLoopsAndScans) {
  const auto branch = [](const Tensor& p, const Tensor& x) {
    return cond(p, [&] { return sin(x) + 1; }, [&] { return matmul(x, x) - 2; });
  };
  for (const bool taken : {true, false})
    expect_agrees(branch, {Tensor::scalar_int(boolean, taken ? 1 : 0), counted(f32, {4, 4})});
  const auto halve = [](const Tensor& x, const Tensor& limit) {
    using State = std::pair<Tensor, Tensor>;
    return while_loop(
        State(abs(x), Tensor::scalar_int(i64, 0)),
        [&](const State& s) { return greater(sum(s.first), limit); },
        [](const State& s) { return State(s.first * 0.5, s.second + 1); });
  };
  const auto halves = [](const Tensor& x, const Tensor& limit) {
    return scan_while(
               abs(x), [&](const Tensor& now) { return greater(sum(now), limit); },
               [](const Tensor& now) { return std::pair(now * 0.5, now + 1); })
        .second;
  };
  for (const double limit : {0.3, 100.0}) {
    expect_agrees(halve, {counted(f32, {7}), Tensor::scalar(f32, limit)});
    expect_agrees(halves, {counted(f32, {7}), Tensor::scalar(f32, limit)});
  }
}

TEST(CudaEngine, ReportsAnIndexOutOfRangeAndGoesOn) {
  Engine engine([](const Tensor& table, const Tensor& at) { return gather(table, at) * 2.0f; },
                on_cuda());
  const Tensor table = counted(f32, {3, 2});
  const auto good = [&] {
    EXPECT_THAT(engine.run({table, Tensor::of<std::int64_t>({2}, {1})})[0].to_doubles(),
                ElementsAre(table.to_doubles()[4] * 2, table.to_doubles()[5] * 2));
  };
  good();
  EXPECT_THAT(text_of<IndexError>([&] { engine.run({table, Tensor::of<std::int64_t>({9}, {1})}); }),
              HasSubstr("gather: index out of range"));
  good();
}

TEST(CudaEngine, RefusesCustomOpsByName) {
  const auto op =
      register_op({.schema = "cuda_test::twice(Tensor x) -> Tensor",
                   .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
                   .cpu = [](const KernelCall&) {}});
  Engine engine([&](const Tensor& x) { return op(x); }, on_cuda());
  const std::string text = text_of<UnsupportedError>([&] { engine.run({counted(f32, {2})}); });
  EXPECT_THAT(text, HasSubstr("custom op cuda_test::twice"));
  EXPECT_THAT(text, HasSubstr("got " + cuda_device().to_string()));
}

TEST(CudaEngine, TensorsOfADeviceAreRefusedElsewhere) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  const Tensor x = counted(f32, {2}).to(cuda_device());
  Engine engine([](const Tensor& a) { return a + 1.0f; });
  EXPECT_EQ(text_of<DeviceError>([&] { engine.run({x}); }),
            "run: input 0: expected cpu, got " + cuda_device().to_string());
  EXPECT_THROW(neg(x), DeviceError) << "eager ops run on the CPU";
  std::vector<Tensor> outputs = {Tensor::empty(f32, {2}, cuda_device())};
  EXPECT_EQ(text_of<DeviceError>([&] { engine.run_into(std::vector{counted(f32, {2})}, outputs); }),
            "run_into: output 0: expected cpu, got " + cuda_device().to_string());
  EXPECT_EQ(text_of<DeviceError>([&] { assign(x, x); }).substr(0, 6), "assign");
}

TEST(CudaEngine, StaysUnderTheMemoryCap) {
  const auto runtime = engine::CudaRuntime::get(cuda_device());
  Engine engine([](const Tensor& x) { return exp(x); }, on_cuda());
  engine.run({counted(f32, {4})});
  runtime->pool().trim();
  runtime->pool().set_cap(runtime->pool().stats().in_use_bytes + (1 << 20));
  EXPECT_THROW(engine.run({Tensor::zeros(f32, {1 << 20})}), OutOfMemory);
  EXPECT_EQ(engine.run({counted(f32, {4})})[0].count(), 4);
  runtime->pool().set_cap(0);
  EXPECT_EQ(engine.run({Tensor::zeros(f32, {1 << 20})})[0].count(), 1 << 20);
}

TEST(CudaEngine, ManyThreadsRunAtOnce) {
  Engine engine(block, on_cuda());
  Engine reference(block, {.device = Device::reference()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 5; ++k) {
        const std::vector<Tensor> inputs = {counted(f32, {2 + t, 8}, k), counted(f32, {8, 12}, t)};
        expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 1e-5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CudaEngine, RunsTheEncoder) {
  example::EncoderConfig config;
  config.layers = 2;
  const example::Encoder encoder{config};
  Tensor ids = Tensor::empty(i64, {2, 5});
  for (std::int64_t k = 0; k < 10; ++k)
    ids.data_as<std::int64_t>()[k] = (k * 7919 + 13) % config.vocabulary;
  expect_agrees(encoder, {ids}, 1e-4);
}

TEST(CudaEngine, PlansNameStreamsAndWaits) {
  Engine engine(
      [](const Tensor& x) {
        return std::vector<Tensor>{softmax(matmul(x, x), -1), sum(matmul(x, x + 1.0f), {0})};
      },
      on_cuda(2));
  const auto plan = Json::parse(engine.plan_json(std::vector{counted(f32, {6, 6})}));
  std::set<int> streams;
  for (const auto& step : plan["steps"]) streams.insert(step["stream"].get<int>());
  EXPECT_THAT(streams, ElementsAre(0, 1));
}

TEST(CudaEngine, AnAnnotationPinsNodesToAStream) {
  const auto f = [](const Tensor& x) {
    Tensor a, b;
    {
      const Annotate second{{"stream", 2}, {"name", "second"}};
      a = exp(x);
      b = cumsum(a * 2.0f, 0);
    }
    const Annotate first{{"stream", 0}};
    return sin(x) + b;
  };
  const std::vector inputs{counted(f32, {6, 6})};
  expect_agrees(f, inputs, 1e-5, 4);
  Engine engine(f, on_cuda(4));
  const auto plan = Json::parse(engine.plan_json(inputs));
  std::map<std::string, int> streams;
  for (const auto& kernel : plan["kernels"])
    for (const auto& step : plan["steps"])
      if (step["kernel"] == kernel["name"])
        for (const auto& node : kernel["nodes"]) streams[node] = step["stream"];
  for (const auto& [node, stream] : streams)
    EXPECT_EQ(stream, node.starts_with("second.") ? 2 : 0) << node;
  EXPECT_TRUE(streams.contains("second.cumsum"));
  EXPECT_TRUE(std::ranges::any_of(streams, [](const auto& s) { return s.second == 0; }));
  Engine wrong(
      [](const Tensor& x) {
        const Annotate scope{{"stream", "fast"}};
        return exp(x);
      },
      on_cuda());
  EXPECT_THROW(wrong.run(inputs), OptionError);
}

}  // namespace
}  // namespace heddle::testing
