// Steps as graphs of the device: the same bits as on streams in every interleaving that the edges allow, updated in
// place between requests, cut where a step queues work of its own; and the simulator objects when an edge is
// left out.
#include <cstdlib>
#include <gmock/gmock.h>
#include <map>
#include <thread>

#include "tests/cuda/capture_support.h"
#include "tests/cuda/support.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Tensor> inputs(std::int64_t n = 6) {
  return {counted(f32, {n, n}), counted(f32, {n, n}, 1), counted(f32, {n, n}, 2)};
}

TEST(CudaGraphs, EveryInterleavingGivesTheBitsOfStreams) {
  Engine streams(three_branches, on_cuda(4, false));
  Engine graphs(three_branches, on_cuda(4, true));
  const std::vector<Tensor> want = streams.run(inputs());
  for (unsigned long seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    interleave(seed);
    const std::vector<Tensor> got = graphs.run(inputs());
    for (std::size_t k = 0; k < want.size(); ++k)
      ASSERT_EQ(got[k].to_doubles(), want[k].to_doubles());
  }
  interleave(0);
  EXPECT_EQ(graphs.stats().graphs, 1u);
  EXPECT_EQ(graphs.stats().graph_launches, 39u) << "the first call is queued step by step";
  EXPECT_EQ(streams.stats().graph_launches, 0u);
}

/// Copies of 6400 bytes; the simulated device takes pitches of 4096 at most, real ones of 2 GiB.
TEST(CudaGraphs, CopiesMayBeLongerThanAPitch) {
  Engine engine(three_branches, on_cuda(4, true));
  Engine reference(three_branches, {.device = Device::reference()});
  const std::vector<Tensor> want = reference.run(inputs(40));
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<Tensor> got = {Tensor::empty(f32, {40, 40}), Tensor::empty(f32, {40, 40})};
    engine.run_into(inputs(40), got);
    for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-4);
  }
  EXPECT_EQ(engine.stats().graph_launches, 2u);
}

TEST(CudaGraphs, AddressesAndSizesAreUpdatedInPlace) {
  Engine engine(three_branches, on_cuda(4, true));
  Engine reference(three_branches, {.device = Device::reference()});
  const auto check = [&](std::int64_t n) {
    SCOPED_TRACE(n);
    std::vector<Tensor> on_device;
    for (const Tensor& input : inputs(n)) on_device.push_back(input.to(cuda_device()));
    const std::vector<Tensor> got = engine.run(on_device);
    const std::vector<Tensor> want = reference.run(inputs(n));
    for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-4);
  };
  check(6);
  check(6);
  const std::uint64_t first = engine.stats().graph_updates;
  for (const std::int64_t n : {7, 40, 0, 6, 0, 3}) check(n);
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.stats().graphs, 1u) << "one for all sizes, kernels without blocks included";
  EXPECT_EQ(engine.stats().graph_launches, 7u);
  EXPECT_GT(engine.stats().graph_updates, first + 6);
}

TEST(CudaGraphs, TensorsInEitherMemoryAreGraphsOfTheirOwn) {
  const auto f = [](const Tensor& state, const Tensor& x) {
    assign(state, state + x);
    return sum(state * 2.0f, {0});
  };
  Engine engine(f, on_cuda(2, true));
  const Tensor x = Tensor::full(f32, {3}, 1);
  const Tensor device_x = x.to(cuda_device());
  const Tensor host = Tensor::of<float>({1, 2, 3}, {3});
  const Tensor device = Tensor::of<float>({1, 2, 3}, {3}).to(cuda_device());
  for (int k = 1; k <= 3; ++k) {
    EXPECT_EQ(engine.run({host, x})[0].item(), 12 + 6 * k);
    EXPECT_EQ(engine.run({device, device_x})[0].item(), 12 + 6 * k);
    EXPECT_THAT(host.to_doubles(), ElementsAre(1 + k, 2 + k, 3 + k));
    EXPECT_THAT(device.to_doubles(), ElementsAre(1 + k, 2 + k, 3 + k));
  }
  EXPECT_EQ(engine.stats().graphs, 2u);
  EXPECT_EQ(engine.stats().graph_launches, 4u);
}

TEST(CudaGraphs, NewParametersAreReadBySoonNewGraphs) {
  const Tensor weights = counted(f32, {3});
  Engine engine([weights](const Tensor& x) { return x * exp(weights * 0.0f) * weights; },
                on_cuda(1, true));
  const Tensor ones = Tensor::full(f32, {3}, 1);
  engine.run({ones});
  for (const double value : {5.0, 7.0}) {
    engine.update_parameter(weights, Tensor::full(f32, {3}, value));
    for (int k = 0; k < 3; ++k)
      EXPECT_THAT(engine.run({ones})[0].to_doubles(), ElementsAre(value, value, value));
  }
}

TEST(CudaGraphs, AScanReadsHowManySlicesAreRunInEachCall) {
  const auto f = [](const Tensor& x, const Tensor& counts) {
    const auto [last, rows] = scan(sum(x, {0}), softmax(x, -1),
                                   [](const Tensor& carry, const Tensor& row) {
                                     const Tensor next = tanh(carry + row);
                                     return std::pair(next, next * 2.0f);
                                   },
                                   {.reverse = true, .count = amax(counts)});
    return std::pair(softmax(rows, -1), last);
  };
  Engine engine(f, on_cuda(4, true));
  Engine reference(f, {.device = Device::reference()});
  for (const std::int64_t count : {3, 0, 5, 1, 4}) {
    SCOPED_TRACE(count);
    const std::vector<Tensor> call = {counted(f32, {5, 7}),
                                      Tensor::of<std::int64_t>({count, count - 1}, {2})};
    const std::vector<Tensor> got = engine.run(call);
    const std::vector<Tensor> wanted = reference.run(call);
    expect_near(got[0], wanted[0], 1e-5);
    expect_near(got[1], wanted[1], 1e-5);
  }
}

/// Kernels around a custom op and a loop, which are queued step by step between graphs.
Tensor cut(const Tensor& x, const Tensor& limit) {
  const Tensor a = softmax(host_work()(softmax(x, -1) * 3.0f)[0], -1);
  const Tensor looped = while_loop(
      std::vector<Tensor>{a},
      [&](const std::vector<Tensor>& s) { return greater(sum(s[0]), limit); },
      [](const std::vector<Tensor>& s) { return std::vector<Tensor>{s[0] * 0.5}; })[0];
  return softmax(looped, -1);
}

TEST(CudaGraphs, AreCutWhereAStepQueuesWorkOfItsOwn) {
  Engine engine(cut, on_cuda(4, true));
  Engine reference(cut, {.device = Device::reference()});
  const Tensor x = counted(f32, {17});
  for (unsigned long seed = 0; seed < 8; ++seed) {
    interleave(seed);
    const std::vector<Tensor> call = {x, Tensor::scalar(f32, seed % 2 == 0 ? 0.3 : 100)};
    expect_near(engine.run(call)[0], reference.run(call)[0], 1e-5);
  }
  interleave(0);
  const std::vector<Tensor> call = {x, Tensor::scalar(f32, 0.3)};
  const auto plan = Json::parse(engine.plan_json(call));
  std::vector<std::string> parts;
  std::size_t next = 0;
  for (const auto& part : plan["captures"]) {
    std::string text;
    for (const std::size_t step : part["steps"]) {
      EXPECT_EQ(step, next++);
      text += (text.empty() ? "" : " ") + plan["steps"][step]["kernel"].get<std::string>();
    }
    parts.push_back(part["captured"].get<bool>() ? "graph"
                                                 : text + ": " + part["reason"].get<std::string>());
  }
  EXPECT_EQ(next, plan["steps"].size());
  EXPECT_THAT(parts, ElementsAre("graph", "cuda_ct::host: holds an op that is not capturable",
                                 "graph", HasSubstr("is conditional"), "graph"));
  EXPECT_EQ(engine.stats().graphs, 3u);
  EXPECT_EQ(engine.stats().graph_launches, 3u * 7);
}

TEST(CudaGraphs, StepsAreReorderedForFewerOfThem) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    const Tensor a = softmax(x, -1);
    const Tensor b = host_work()(y)[0];
    const Tensor c = softmax(matmul(a, x), -1);
    return std::vector<Tensor>{c, b};
  };
  Engine engine(f, on_cuda(1, true));
  const std::vector<Tensor> call = {counted(f32, {4, 4}), counted(f32, {5})};
  Engine reference(f, {.device = Device::reference()});
  for (int k = 0; k < 2; ++k)
    for (std::size_t o = 0; o < 2; ++o)
      expect_near(engine.run(call)[o], reference.run(call)[o], 1e-5);
  const auto plan = Json::parse(engine.plan_json(call));
  ASSERT_EQ(plan["captures"].size(), 2u);
  EXPECT_EQ(plan["captures"][0]["captured"], false) << "it waits for nothing, so it goes first";
  EXPECT_EQ(plan["steps"][0]["kernel"], "cuda_ct::host");
}

TEST(CudaGraphs, ACheckThatFailsInALoopSkipsTheGraphsBehindIt) {
  const auto f = [](const Tensor& table, const Tensor& at) {
    using State = std::pair<Tensor, Tensor>;
    const State end = while_loop(
        State(Tensor::zeros(f32, {2}), at),
        [](const State& s) { return less(sum(s.second), Tensor::scalar_int(i64, 3)); },
        [&](const State& s) {
          return State(s.first + sum(gather(table, s.second), {0}), s.second + 1);
        });
    return softmax(end.first, -1);
  };
  Engine engine(f, on_cuda(2, true));
  Engine reference(f, {.device = Device::reference()});
  const Tensor table = counted(f32, {3, 2});
  const auto good = [&] {
    const std::vector<Tensor> call = {table, Tensor::of<std::int64_t>({1}, {1})};
    expect_near(engine.run(call)[0], reference.run(call)[0], 1e-5);
  };
  for (int k = 0; k < 3; ++k) good();
  EXPECT_THROW(engine.run({table, Tensor::of<std::int64_t>({-9}, {1})}), IndexError);
  good();
}

TEST(CudaGraphs, AreTurnedOffByOptionAndEnvironment) {
  const auto launches = [](std::optional<bool> option, const char* environment) {
    environment == nullptr ? ::unsetenv("HEDDLE_CUDA_GRAPHS")
                           : ::setenv("HEDDLE_CUDA_GRAPHS", environment, 1);
    EngineOptions options = on_cuda(2);
    options.cuda_graphs = option;
    Engine engine([](const Tensor& x) { return x + 1.0f; }, options);
    const std::vector<Tensor> call = {counted(f32, {4})};
    for (int k = 0; k < 3; ++k) engine.run(call);
    const auto plan = Json::parse(engine.plan_json(call));
    EXPECT_EQ(plan["captures"].size(), 1u);
    EXPECT_EQ(plan["captures"][0]["captured"], engine.stats().graph_launches != 0);
    ::unsetenv("HEDDLE_CUDA_GRAPHS");
    return engine.stats().graph_launches;
  };
  EXPECT_EQ(launches({}, nullptr), 2u) << "from the second call on, of one kernel too";
  EXPECT_EQ(launches({}, "0"), 0u);
  EXPECT_EQ(launches({}, "1"), 2u);
  EXPECT_EQ(launches(true, "0"), 2u) << "the option wins";
  EXPECT_EQ(launches(false, "1"), 0u);
  EXPECT_THROW(launches({}, "yes"), OptionError);
  ::unsetenv("HEDDLE_CUDA_GRAPHS");
}

TEST(CudaGraphs, EachRequestInFlightHasItsOwn) {
  Engine engine(three_branches, on_cuda(4, true));
  Engine reference(three_branches, {.device = Device::reference()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<Tensor> want = reference.run(inputs(3 + t));
      for (int k = 0; k < 6; ++k) {
        const std::vector<Tensor> got = engine.run(inputs(3 + t));
        for (std::size_t o = 0; o < want.size(); ++o) expect_near(got[o], want[o], 1e-4);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(engine.stats().graphs, 1u);
  EXPECT_LE(engine.stats().graphs, 4u);
  EXPECT_GE(engine.stats().graph_launches, 24u - 2 * 4);
}

/// Mutation: each edge in turn is left out when the graph is made.
TEST(CudaGraphs, AnEdgeThatIsLeftOutIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  std::vector<Tensor> outputs = {Tensor::empty(f32, {6, 6}), Tensor::empty(f32, {6, 6})};
  unsigned long edges = 0;
  {
    Engine engine(three_branches, on_cuda(4, true));
    engine.run_into(inputs(), outputs);
    control().skip_edge(0);
    engine.run_into(inputs(), outputs);
    edges = control().edges();
  }
  ASSERT_GE(edges, 15u);
  for (unsigned long n = 1; n <= edges; ++n) {
    for (const unsigned long seed : {0ul, 1ul, 5ul}) {
      SCOPED_TRACE("edge " + std::to_string(n) + " of " + std::to_string(edges) + ", seed " +
                   std::to_string(seed));
      Engine engine(three_branches, on_cuda(4, true));
      engine.run_into(inputs(), outputs);
      interleave(seed);
      control().skip_edge(n);
      std::string error;
      try {
        engine.run_into(inputs(), outputs);
        engine.run_into(inputs(), outputs);
      } catch (const DeviceLost& lost) {
        error = lost.what();
      }
      control().skip_edge(0);
      interleave(0);
      EXPECT_NE(error, "") << "nobody noticed";
      EXPECT_THAT(std::string(control().problem()), HasSubstr("neither waits for the other"));
    }
  }
}

}  // namespace
}  // namespace heddle::testing
