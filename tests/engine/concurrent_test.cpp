// Many threads, many sizes, one engine.
#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "heddle/heddle.h"
#include "memory/allocator.h"

namespace hd = heddle;

namespace {

struct Pair {
  hd::Tensor sum;
  int tag = 0;
  std::vector<hd::Tensor> rest;
};
auto heddle_fields(Pair& p) { return std::tie(p.sum, p.rest); }

}  // namespace

TEST(Concurrent, ThreadsAndSizes) {
  hd::Engine engine([](const hd::Tensor& x) { return hd::sum(x * 2, {1}); },
                    {.threads = 2, .max_plans = 8});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int k = 0; k < 60; ++k) {
        const std::int64_t rows = 1 + random() % 7;
        const std::int64_t columns = random() % 9;
        const auto out = engine.run({hd::Tensor::full(hd::f32, {rows, columns}, 1)});
        for (const double v : out[0].to_doubles()) wrong += v != 2.0 * static_cast<double>(columns);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(engine.stats().runs, 240u);
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Concurrent, SteadyRunIntoAllocatesNothing) {
  hd::Engine engine([](const hd::Tensor& x) { return hd::softmax(hd::exp(x), -1); });
  std::vector<hd::Tensor> inputs{hd::Tensor::full(hd::f32, {8, 33}, 0.5)};
  std::vector<hd::Tensor> outputs{hd::Tensor::zeros(hd::f32, {8, 33})};
  engine.run_into(inputs, outputs);
  const auto before = heddle::memory::CachingAllocator::host().stats().allocations;
  for (int k = 0; k < 10; ++k) engine.run_into(inputs, outputs);
  EXPECT_EQ(heddle::memory::CachingAllocator::host().stats().allocations, before);
  EXPECT_NEAR(outputs[0].to_doubles()[5], 1.0 / 33, 1e-6);
}

TEST(Concurrent, FunctionReturnsTheCallablesOwnType) {
  hd::Function f(
      [](const hd::Tensor& a, const hd::Tensor& b) { return Pair{a + b, 7, {a - b, a * b}}; });
  const Pair p = f(hd::Tensor::full(hd::f32, {2}, 3), hd::Tensor::full(hd::f32, {2}, 4));
  EXPECT_EQ(p.tag, 7);
  EXPECT_EQ(p.sum.to_doubles()[1], 7);
  EXPECT_EQ(p.rest[0].to_doubles()[0], -1);
  EXPECT_EQ(p.rest[1].to_doubles()[0], 12);
}

TEST(Concurrent, StridedInputsAndViews) {
  std::vector<float> data{0, 1, 2, 3, 4, 5};
  hd::Engine engine([](const hd::Tensor& x) { return hd::transpose(x, 0, 1) + 1; });
  const auto out = engine.run({hd::Tensor::wrap_strided(data.data(), hd::f32, {3, 2}, {1, 3})});
  EXPECT_EQ(out[0].to_doubles(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(Concurrent, OutputsThatAreInputsOrTheSameValue) {
  hd::Engine engine([](const hd::Tensor& x) {
    const hd::Tensor y = x + 1;
    return std::vector<hd::Tensor>{x, y, y, hd::reshape(y, {x.size(0)})};
  });
  const auto out = engine.run({hd::Tensor::full(hd::f32, {3}, 1)});
  EXPECT_EQ(out[0].to_doubles()[2], 1);
  for (std::size_t k = 1; k < 4; ++k) EXPECT_EQ(out[k].to_doubles()[2], 2) << k;
  EXPECT_NE(out[1].data(), out[2].data());
}

TEST(Concurrent, NewSizesDoNotWaitForAnotherThreadsTrace) {
  std::atomic<bool> tracing{false};
  std::atomic<bool> go_on{false};
  hd::Engine engine([&](const hd::Tensor& x) {
    if (x.rank() == 2) {
      tracing = true;
      tracing.notify_all();
      go_on.wait(false);
    }
    return x + 1;
  });
  engine.run({hd::Tensor::full(hd::f32, {3}, 1)});
  std::thread slow([&] {
    const auto out = engine.run({hd::Tensor::full(hd::f32, {2, 2}, 1)});
    EXPECT_EQ(out[0].to_doubles()[3], 2);
  });
  tracing.wait(false);
  // Each of these would wait for ever if the trace held what they need.
  const auto out = engine.run({hd::Tensor::full(hd::f32, {5}, 1)});
  EXPECT_EQ(out[0].to_doubles()[4], 2);
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.signature().inputs.size(), 1u);
  go_on = true;
  go_on.notify_all();
  slow.join();
  EXPECT_EQ(engine.stats().compiles, 2u);
}

TEST(Concurrent, ThreadsThatMissTogetherCompileOnce) {
  std::atomic<int> calls{0};
  hd::Engine engine([&](const hd::Tensor& x) {
    ++calls;
    return x * 3;
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] { engine.run({hd::Tensor::full(hd::f32, {4 + t}, 1)}); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls.load(), 1);
  EXPECT_EQ(engine.stats().compiles, 1u);
}
