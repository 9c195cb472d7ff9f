// Products whose blocks share tiles, each with a part of the depth, and attention whose blocks share queries, each with a part
// of the keys: when plans take them, that their results never depend on who comes last, and that nobody else's launch
// meets their counters.
#include <gmock/gmock.h>
#include <thread>

#include "base/half.h"
#include "tests/cuda/metered.h"
#include "tests/cuda/support.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;

/// Numbers in (-1, 1) whose sums depend on their order.
Tensor uneven(DType dtype, Sizes sizes, int start = 0) {
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    const float number = static_cast<float>((k * 7 + start) % 23) / 12 - 0.9f;
    if (dtype == f32)
      static_cast<float*>(tensor.data())[k] = number;
    else
      static_cast<std::uint16_t*>(tensor.data())[k] = base::Half(number).bits;
  }
  return tensor;
}

std::vector<Tensor> operands(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                             DType dtype = f16) {
  return {uneven(dtype, {rows, depth}), uneven(dtype, {depth, columns}, 3)};
}

Tensor deep_layer(const Tensor& x, const Tensor& w) { return relu(matmul(x, w) * 0.125f); }

std::vector<unsigned char> bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu());
  const auto* first = static_cast<const unsigned char*>(host.data());
  return {first, first + static_cast<std::size_t>(host.count()) * size_of(host.dtype())};
}

/// "tensor_64x64x64 / 4" of each step that is a product.
std::vector<std::string> ways(const Json& plan) {
  std::vector<std::string> found;
  for (const auto& step : plan.at("steps")) {
    if (!step.contains("variant")) continue;
    found.push_back(step.at("variant"));
    if (step.contains("parts")) found.back() += " / " + step.at("parts").dump();
  }
  return found;
}

/// Bytes that a plan sets aside for shared tiles.
std::vector<std::int64_t> share_bytes(const Json& plan) {
  std::vector<std::int64_t> found;
  for (const auto& buffer : plan.at("buffers"))
    if (buffer.at("value").get<std::string>().ends_with(".shares"))
      found.push_back(buffer.at("bytes"));
  return found;
}

/// On a simulated device of sixteen multiprocessors.
class CudaSharedTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_simulator()) control().multiprocessors(16);
  }
  void TearDown() override {
    if (on_simulator()) control().multiprocessors(0);
    interleave(0);
  }
};

/// Of many small tiles as many as fit run at a time: by the compiler's report, fewer where threads take many registers.
TEST_F(CudaSharedTiles, RegistersOfThreadsDecideBetweenKernels) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto way_with = [](unsigned int registers) {
    control().registers(registers);
    Engine engine(deep_layer, on_cuda());
    const auto found = ways(Json::parse(engine.plan_json(operands(128, 64, 256, f32))));
    control().registers(0);
    return found;
  };
  EXPECT_THAT(way_with(32), ::testing::ElementsAre("rows_8x128"));
  EXPECT_THAT(way_with(255), ::testing::ElementsAre("plain_64x64x16"));
}

TEST_F(CudaSharedTiles, FewTilesOfADeepProductAreShared) {
  Engine engine(deep_layer, on_cuda());
  Engine reference(deep_layer, {.device = Device::reference()});
  struct Deep {
    std::int64_t rows, depth, columns;
    const char* way;
    std::int64_t bytes;
  };
  for (const Deep& one : {Deep{1, 4096, 64, "tensor_16x64x64 / 32", 32 * 16 * 64 * 4},
                          Deep{1, 1024, 1024, "tensor_16x64x64", 0},
                          Deep{64, 2048, 64, "tensor_16x64x64 / 16", 4 * 16 * 16 * 64 * 4},
                          Deep{64, 64, 64, "tensor_16x64x64", 0}, Deep{0, 4096, 64, "", 0}}) {
    SCOPED_TRACE(std::to_string(one.rows) + " x " + std::to_string(one.depth));
    const std::vector<Tensor> inputs = operands(one.rows, one.depth, one.columns);
    expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 4e-3);
    expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 4e-3);
    if (!on_simulator()) continue;
    const Json plan = Json::parse(engine.plan_json(inputs));
    if (*one.way != 0) {
      EXPECT_THAT(ways(plan), ::testing::ElementsAre(one.way));
    }
    EXPECT_THAT(share_bytes(plan), ::testing::ElementsAre(one.bytes));
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// What blocks leave for the last one, they write and it reads 16 bytes a thread at a time.
TEST_F(CudaSharedTiles, SharesAreMovedFourNumbersAtATime) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Engine engine(deep_layer, on_cuda());
  const std::vector<Tensor> inputs = operands(64, 2112, 64);
  const auto launches = metered([&] { engine.run(inputs)[0].wait(); });
  ASSERT_EQ(launches.size(), 1u);
  ASSERT_THAT(launches[0].kernel, ::testing::HasSubstr("tensor_16x64x64"));
  const std::int64_t shares = share_bytes(Json::parse(engine.plan_json(inputs))).at(0);
  int sites = 0;
  for (const SiteTraffic& site : launches[0].sites)
    if (!site.is_shared() && static_cast<std::int64_t>(site.bytes) == shares) {
      EXPECT_EQ(site.bytes, 32 * 16 * site.requests) << site;
      ++sites;
    }
  EXPECT_EQ(sites, 1)
      << "written; each tile's first share is read at another place than the others";
}

TEST_F(CudaSharedTiles, ResultsDoNotDependOnTheOrderOfBlocks) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Engine engine(deep_layer, on_cuda());
  for (const DType dtype : {f16, f32})
    for (const std::int64_t rows : {1, 16, 64}) {
      const std::vector<Tensor> inputs = operands(rows, rows == 1 ? 4096 : 2048, 64, dtype);
      interleave(0);
      const std::vector<unsigned char> want = bytes_of(engine.run(inputs)[0]);
      for (unsigned long seed = 1; seed <= 4; ++seed) {
        interleave(seed);
        EXPECT_EQ(bytes_of(engine.run(inputs)[0]), want) << "seed " << seed;
      }
    }
}

/// Parts of P blocks: of P - 1 the sums reach the last one by their own fence, and that has to have one too.
TEST_F(CudaSharedTiles, AFenceThatIsLeftOutIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const std::vector<Tensor> inputs = operands(1, 4096, 64);
  std::uint64_t fences = 0;
  {
    Engine engine(deep_layer, on_cuda());
    engine.run(inputs);
    control().skip_fence(0);
    engine.run(inputs);
    fences = control().skip_fence(0);
  }
  ASSERT_EQ(fences, 64u) << "two of each of the 32 blocks of a tile";
  std::uint64_t noticed = 0;
  for (std::uint64_t n = 1; n <= fences; ++n) {
    Engine engine(deep_layer, on_cuda());
    control().skip_fence(n);
    try {
      engine.run(inputs);
    } catch (const DeviceLost&) {
      EXPECT_THAT(std::string(control().problem()),
                  ::testing::HasSubstr("no barrier lies between"));
      ++noticed;
    }
    control().skip_fence(0);
  }
  EXPECT_EQ(noticed, 32u);
}

/// Two products at a time on two streams; with counters in common the simulator would object in any order.
TEST_F(CudaSharedTiles, StreamsHaveCountersOfTheirOwn) {
  const auto two = [](const Tensor& x, const Tensor& w) {
    return std::vector<Tensor>{deep_layer(x, w), deep_layer(x * 0.5f, w)};
  };
  Engine reference(two, {.device = Device::reference()});
  const std::vector<Tensor> inputs = operands(1, 4096, 64);
  const std::vector<Tensor> want = reference.run(inputs);
  for (const bool graphs : {false, true})
    for (const unsigned long seed : {0ul, 3ul, 4ul}) {
      SCOPED_TRACE(seed);
      interleave(seed);
      Engine engine(two, on_cuda(2, graphs));
      for (int repeat = 0; repeat < 3; ++repeat) {
        const std::vector<Tensor> got = engine.run(inputs);
        for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 4e-3);
      }
      if (on_simulator()) {
        EXPECT_THAT(ways(Json::parse(engine.plan_json(inputs))),
                    ::testing::ElementsAre("tensor_16x64x64 / 32", "tensor_16x64x64 / 32"));
      }
    }
}

TEST_F(CudaSharedTiles, RequestsInFlightHaveCountersOfTheirOwn) {
  Engine engine(deep_layer, on_cuda());
  Engine reference(deep_layer, {.device = Device::reference()});
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&, caller] {
      const std::vector<Tensor> inputs = operands(1 + 15 * caller, 2048, 64);
      const Tensor want = reference.run(inputs)[0];
      for (int repeat = 0; repeat < 4; ++repeat) expect_near(engine.run(inputs)[0], want, 4e-3);
    });
  for (std::thread& caller : callers) caller.join();
}

/// Sizes change what is launched, in graphs too: shared, not shared, nothing.
TEST_F(CudaSharedTiles, PlansOfOtherSizesUpdateTheGraphOfTheDevice) {
  Engine engine(deep_layer, on_cuda(0, true));
  Engine reference(deep_layer, {.device = Device::reference()});
  for (const std::int64_t depth : {2048, 64, 2048, 0, 4096, 64})
    for (int repeat = 0; repeat < 2; ++repeat) {
      SCOPED_TRACE(depth);
      const std::vector<Tensor> inputs = operands(16, depth, 64);
      expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 4e-3);
    }
}

/// Counters are 0 after runs that fail at any of their calls.
TEST_F(CudaSharedTiles, RunsAfterAFailedOneAreRight) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto chain = [](const Tensor& x, const Tensor& w, const Tensor& v) {
    return deep_layer(deep_layer(x, w), v);
  };
  Engine engine(chain, on_cuda(0, false));
  const std::vector<Tensor> inputs = {uneven(f16, {1, 4096}), uneven(f16, {4096, 64}, 3),
                                      uneven(f16, {64, 96}, 5)};
  const std::vector<unsigned char> want = bytes_of(engine.run(inputs)[0]);
  control().fail(0, 0);
  engine.run(inputs);
  const unsigned long calls = control().calls();
  ASSERT_GT(calls, 4u);
  int failed = 0;
  for (unsigned long n = 1; n <= calls; ++n) {
    control().fail(n, 1);
    try {
      engine.run(inputs);
    } catch (const DeviceError&) {
      ++failed;
    }
    control().fail(0, 0);
    EXPECT_EQ(bytes_of(engine.run(inputs)[0]), want) << "after call " << n << " failed";
  }
  EXPECT_GT(failed, 4);
}

/// Queries of four heads, keys and values of two.
std::vector<Tensor> heads(DType dtype, std::int64_t queries, std::int64_t keys) {
  return {uneven(dtype, {1, 4, queries, 32}), uneven(dtype, {1, 2, keys, 32}, 3),
          uneven(dtype, {1, 2, keys, 32}, 5)};
}

/// Heads of 32, whatever their lengths.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto heads_of = [](const Tensor& x, std::int64_t count) {
    return reshape(x, {1, count, -1, 32});
  };
  return attention(heads_of(q, 4), heads_of(k, 2), heads_of(v, 2), {}, true) * 2.0f;
}

/// One compile for all lengths of a cache: few queries of many keys share them among blocks. Those of two heads that share keys
/// are rows of the same tiles.
TEST_F(CudaSharedTiles, ManyKeysOfFewQueriesAreParted) {
  Engine engine(attend, on_cuda(0, true));
  Engine reference(attend, {.device = Device::reference()});
  struct Case {
    std::int64_t queries, keys;
    const char* way;
    std::int64_t bytes;
  };
  for (const Case& one : {Case{1, 2000, "flash_16x64 / 16", 2 * 16 * 16 * 34 * 4},
                          {1, 100, "flash_16x64", 0},
                          {20, 2000, "flash_16x64 / 16", 6 * 16 * 16 * 34 * 4},
                          {1, 2001, "flash_16x64 / 16", 2 * 16 * 16 * 34 * 4},
                          {1, 0, "", 0},
                          {300, 300, "flash_16x64", 0}}) {
    SCOPED_TRACE(std::to_string(one.queries) + " x " + std::to_string(one.keys));
    const std::vector<Tensor> inputs = heads(f16, one.queries, one.keys);
    const Tensor want = reference.run(inputs)[0];
    for (int repeat = 0; repeat < 2; ++repeat) expect_near(engine.run(inputs)[0], want, 2e-3);
    if (!on_simulator() || *one.way == 0) continue;
    const Json plan = Json::parse(engine.plan_json(inputs));
    EXPECT_THAT(ways(plan), ::testing::ElementsAre(one.way));
    EXPECT_THAT(share_bytes(plan), ::testing::ElementsAre(one.bytes));
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// Lengths of sequences in a batch, as data says them: what nobody sees of a row's keys is not parted.
TEST_F(CudaSharedTiles, PartedKeysOfSequencesOfAnyLength) {
  const auto f = [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& seen) {
    const auto heads_of = [](const Tensor& x) { return reshape(x, {3, 2, -1, 16}); };
    return attention(heads_of(q), heads_of(k), heads_of(v), seen);
  };
  for (const DType dtype : {f16, f32}) {
    std::vector<Tensor> inputs = {uneven(dtype, {3, 2, 1, 16}), uneven(dtype, {3, 2, 1500, 16}, 3),
                                  uneven(dtype, {3, 2, 1500, 16}, 5),
                                  Tensor::full(boolean, {3, 1, 1, 1500}, 0)};
    auto* const seen = static_cast<bool*>(inputs[3].data());
    std::fill_n(seen, 1500, true);
    std::fill_n(seen + 1500, 131, true);
    std::fill_n(seen + 2 * 1500 + 1400, 100, true);
    expect_agrees(f, inputs, dtype == f16 ? 2e-3 : 1e-5);
  }
}

TEST_F(CudaSharedTiles, AttentionDoesNotDependOnTheOrderOfBlocks) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Engine engine(attend, on_cuda());
  for (const DType dtype : {f16, f32}) {
    const std::vector<Tensor> inputs = heads(dtype, 3, 1500);
    interleave(0);
    const std::vector<unsigned char> want = bytes_of(engine.run(inputs)[0]);
    EXPECT_THAT(ways(Json::parse(engine.plan_json(inputs))),
                ::testing::ElementsAre(::testing::HasSubstr(" / ")));
    for (unsigned long seed = 1; seed <= 4; ++seed) {
      interleave(seed);
      EXPECT_EQ(bytes_of(engine.run(inputs)[0]), want) << "seed " << seed;
    }
  }
}

TEST_F(CudaSharedTiles, LoopsRunThem) {
  const auto loop = [](const Tensor& x, const Tensor& w) {
    return while_loop(
        std::vector<Tensor>{x, Tensor::scalar_int(i32, 0)},
        [](const std::vector<Tensor>& s) { return less(s[1], Tensor::scalar_int(i32, 2)); },
        [w](const std::vector<Tensor>& s) {
          const Tensor next = s[0] + sum(matmul(s[0], w)) * 0.001f;
          return std::vector<Tensor>{next, s[1] + 1};
        })[0];
  };
  expect_agrees(loop, {uneven(f16, {1, 4096}), uneven(f16, {4096, 64}, 3)}, 1e-2);
}

}  // namespace
}  // namespace heddle::testing
