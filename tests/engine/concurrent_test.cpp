// Many threads, many sizes, one engine.
#include <atomic>
#include <barrier>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "heddle/custom_op.h"
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

namespace {

/// The sum of what a custom op copies, so that the copy lies in the arena. While `meeting` is set the op's kernel waits for
/// a second one: there are two contexts then.
std::atomic<bool> meeting{false};

hd::Tensor sum_of_copy(const hd::Tensor& x) {
  static std::barrier<> both(2);
  static const hd::RegisteredOp op = hd::register_op(
      {.schema = "memory_test::copy(Tensor x) -> Tensor",
       .shape = [](const hd::ShapeCall& call) { return std::vector{call.tensor(0)}; },
       .cpu =
           [](const hd::KernelCall& call) {
             const auto count = static_cast<std::size_t>(call.tensor(0).count());
             std::memcpy(call.results[0].data, call.tensor(0).data, count * 4);
             if (meeting) both.arrive_and_wait();
           }});
  return hd::sum(op(x)[0]);
}

hd::MemoryStats::Pool host_memory() {
  const hd::Engine any([](const hd::Tensor& x) { return x; });
  return any.memory().host;
}

std::size_t held(const hd::MemoryStats::Pool& pool) {
  return pool.in_use_bytes + pool.cached_bytes;
}

constexpr std::int64_t kMany = 1 << 20;  // elements of 4 bytes: 4 MiB, a size of which blocks are

}  // namespace

TEST(Memory, TrimGivesBackWhatIdleContextsHoldAndNoMore) {
  hd::Engine engine(sum_of_copy, {.threads = 1});
  const hd::Tensor x = hd::Tensor::full(hd::f32, {kMany}, 1);
  const hd::Tensor kept = hd::Tensor::full(hd::f32, {3}, 7);
  engine.trim();
  const hd::MemoryStats::Pool before = engine.memory().host;
  EXPECT_EQ(engine.run({x})[0].to_doubles()[0], kMany);
  const hd::MemoryStats::Pool after_run = engine.memory().host;
  EXPECT_GE(after_run.in_use_bytes, before.in_use_bytes + kMany * 4) << "an idle context's arena";
  EXPECT_GE(after_run.peak_bytes, after_run.in_use_bytes);
  const std::size_t given_back = engine.trim();
  const hd::MemoryStats::Pool after = engine.memory().host;
  EXPECT_EQ(given_back, held(after_run) - held(after));
  EXPECT_GE(given_back, std::size_t{kMany} * 4);
  EXPECT_EQ(after.in_use_bytes, before.in_use_bytes);
  EXPECT_EQ(after.cached_bytes, 0u);
  EXPECT_EQ(engine.trim(), 0u);
  EXPECT_EQ(kept.to_doubles()[2], 7);
  EXPECT_EQ(engine.run({x})[0].to_doubles()[0], kMany);
  EXPECT_EQ(engine.memory().device.in_use_bytes, 0u) << "an engine on the CPU";
}

TEST(Memory, TrimsWhileOthersRun) {
  hd::Engine engine(sum_of_copy, {.threads = 2});
  std::atomic<int> running{3};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 60; ++k) {
        const std::int64_t n = 1 + (k * 977 + t * 311) % 5000;
        wrong += engine.run({hd::Tensor::full(hd::f32, {n}, 2)})[0].to_doubles()[0] !=
                 2.0 * static_cast<double>(n);
      }
      --running;
    });
  while (running > 0) {
    engine.trim();
    const hd::MemoryStats::Pool held = engine.memory().host;
    EXPECT_EQ(held.cap_bytes, 0u);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GE(engine.memory().host.peak_bytes, 4 * sizeof(float));
  engine.trim();
  EXPECT_EQ(engine.memory().host.cached_bytes, 0u);
}

TEST(Memory, ACallBeyondTheCapIsATypedErrorAndTheEngineGoesOn) {
  const hd::Tensor small = hd::Tensor::full(hd::f32, {100}, 1);
  const hd::Tensor large = hd::Tensor::full(hd::f32, {kMany}, 1);
  const std::size_t in_use = host_memory().in_use_bytes;
  {
    hd::Engine engine(sum_of_copy, {.threads = 1, .memory_cap = in_use + (2 << 20)});
    hd::Engine looser(sum_of_copy, {.threads = 1, .memory_cap = in_use + (64 << 20)});
    EXPECT_EQ(engine.memory().host.cap_bytes, in_use + (2 << 20)) << "the smallest";
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(engine.run({small})[0].to_doubles()[0], 100);
      EXPECT_THROW(engine.run({large}), hd::OutOfMemory);
      EXPECT_THROW(looser.run({large}), hd::OutOfMemory) << "it is the memory's";
      EXPECT_LE(held(engine.memory().host), in_use + (2 << 20));
    }
    EXPECT_EQ(engine.run({small})[0].to_doubles()[0], 100);
    engine = std::move(looser);
    EXPECT_EQ(engine.memory().host.cap_bytes, in_use + (64 << 20));
    EXPECT_EQ(engine.run({large})[0].to_doubles()[0], kMany);
  }
  EXPECT_EQ(host_memory().cap_bytes, 0u);
}

TEST(Memory, WhatIdleContextsHoldIsTakenBeforeACallFails) {
  hd::Engine engine(sum_of_copy, {.threads = 1});
  const hd::Tensor x = hd::Tensor::full(hd::f32, {kMany}, 1);
  const hd::Tensor larger = hd::Tensor::full(hd::f32, {2 * kMany}, 1);
  engine.prepare(std::vector<hd::Tensor>{larger});
  const std::size_t in_use = host_memory().in_use_bytes;
  meeting = true;
  std::thread other([&] { engine.run({x}); });
  engine.run({x});
  other.join();
  meeting = false;
  EXPECT_GE(host_memory().in_use_bytes, in_use + 2 * kMany * 4) << "two contexts";
  auto& host = heddle::memory::CachingAllocator::host();
  const auto cap = host.hold_cap(host.stats().in_use_bytes + (1 << 20));
  EXPECT_EQ(engine.run({larger})[0].to_doubles()[0], 2 * kMany);
}
