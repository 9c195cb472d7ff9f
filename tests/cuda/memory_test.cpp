// Memory of the CUDA device: what the pool says it has is what the driver gave, never more than the cap.
#include <atomic>
#include <gmock/gmock.h>
#include <thread>

#include "base/lasting.h"
#include "engine/cuda_runtime.h"
#include "tests/cuda/recorded.h"
#include "tests/cuda/support.h"
#include "tests/support/error_text.h"

namespace heddle::testing {
namespace {

class CudaMemory : public ::testing::Test {
 protected:
  static Tensor f(const Tensor& x) { return softmax(x, -1) + sum(exp(x), {0}); }
  static Tensor square(std::int64_t n) { return counted(f32, {n, n}); }

  memory::DevicePool& pool() { return runtime_->pool(); }
  std::size_t held() {
    const memory::DevicePool::Stats stats = pool().stats();
    return stats.in_use_bytes + stats.cached_bytes;
  }

  engine::CudaRuntimePtr runtime_ = engine::CudaRuntime::get(cuda_device());
};

TEST_F(CudaMemory, TheAccountIsWhatTheDriverGave) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(control().memory(), held());
  {
    Engine engine(f, on_cuda(4));
    std::vector<Tensor> kept;
    for (const std::int64_t n : {5, 90, 17, 200, 5, 90}) {
      kept.push_back(engine.run({square(n)})[0]);
      EXPECT_EQ(control().memory(), held());
      if (n == 17) kept.clear();
      EXPECT_EQ(control().memory(), held());
    }
  }
  EXPECT_EQ(control().memory(), held());
  pool().trim();
  EXPECT_EQ(control().memory(), held());
  EXPECT_EQ(pool().stats().cached_bytes, 0u);
}

TEST_F(CudaMemory, TrimGivesBackWhatNobodyUsesAndNoMore) {
  Engine engine([](const Tensor& x) { return x + 1.0f; }, on_cuda());
  Tensor kept = engine.run({square(4)})[0];
  engine.run({square(1000)});
  const memory::DevicePool::Stats before = pool().stats();
  EXPECT_GE(before.cached_bytes, 1000u * 1000 * 4);
  pool().trim();
  const memory::DevicePool::Stats after = pool().stats();
  EXPECT_EQ(after.cached_bytes, 0u);
  EXPECT_EQ(after.in_use_bytes, before.in_use_bytes);
  EXPECT_EQ(kept.to_doubles()[0], 0) << "memory in use stays";
  EXPECT_EQ(engine.run({square(1000)})[0].to_doubles()[1], 0.625);
}

TEST_F(CudaMemory, TheDriverNeverGivesMoreThanTheCap) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Engine engine(f, on_cuda(4));
  engine.run({square(8)});
  pool().trim();
  const std::size_t cap = pool().stats().in_use_bytes + (std::size_t{3} << 20);
  pool().set_cap(cap);
  int refused = 0;
  int served = 0;
  control().memory_peak();
  for (const std::int64_t n : {100, 200, 600, 150, 2000, 250, 800, 100}) {
    try {
      EXPECT_EQ(engine.run({square(n)})[0].count(), n * n);
      ++served;
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(std::string(error.what()),
                  ::testing::HasSubstr("at most " + std::to_string(cap) + " bytes"));
      ++refused;
    }
    EXPECT_LE(control().memory_peak(), cap) << n;
    EXPECT_EQ(control().memory(), held());
  }
  pool().set_cap(0);
  EXPECT_GE(refused, 2);
  EXPECT_GE(served, 4);
}

std::size_t all_of(const MemoryStats::Pool& memory) {
  return memory.in_use_bytes + memory.cached_bytes;
}

std::size_t all_of(const MemoryStats& memory) {
  return all_of(memory.host) + all_of(memory.device) + all_of(memory.pinned);
}

TEST_F(CudaMemory, AnEngineTellsAndGivesBackWhatItsContextsHold) {
  Engine engine(f, on_cuda(4));
  const Tensor x = square(300);
  const Tensor kept = x.to(cuda_device());
  engine.trim();
  const MemoryStats before = engine.memory();
  EXPECT_EQ(before.device.in_use_bytes, pool().stats().in_use_bytes);
  const std::vector<double> want = engine.run({x})[0].to_doubles();
  engine.run({x});
  const MemoryStats after_run = engine.memory();
  EXPECT_GE(after_run.device.in_use_bytes, before.device.in_use_bytes + 300 * 300 * 4)
      << "an idle context";
  EXPECT_GE(after_run.pinned.in_use_bytes, before.pinned.in_use_bytes + 300 * 300 * 4);
  const std::size_t given_back = engine.trim();
  const MemoryStats after = engine.memory();
  EXPECT_EQ(given_back, all_of(after_run) - all_of(after));
  EXPECT_GE(given_back, 2u * 300 * 300 * 4);
  EXPECT_EQ(after.device.in_use_bytes, before.device.in_use_bytes);
  EXPECT_EQ(after.pinned.in_use_bytes, before.pinned.in_use_bytes);
  EXPECT_EQ(after.device.cached_bytes + after.pinned.cached_bytes, 0u);
  if (on_simulator()) {
    EXPECT_EQ(control().memory(), all_of(after.device));
  }
  EXPECT_EQ(engine.run({kept})[0].to_doubles(), want);
  EXPECT_EQ(engine.run({x})[0].to_doubles(), want);
}

/// Weights in another form are on the device alone, those of a nested plan too.
TEST_F(CudaMemory, WhatWasFoldedLeavesTheHost) {
  const Tensor weight = counted(f32, {72, 72});
  const auto folded = [weight](const Tensor& x) {
    return matmul(x, cumsum(softmax(weight, -1), 0));
  };
  const auto nested = [folded](const Tensor& x) {
    return cond(greater(sum(x), 0.0f), [&] { return folded(x); }, [&] { return x * 1.0f; });
  };
  const std::size_t before = base::lasting_bytes();
  const std::vector<Tensor> inputs{counted(f32, {3, 72})};
  const auto check = [&](auto f) {
    Engine engine(f, on_cuda());
    Engine reference(f, {.device = Device::reference()});
    expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 1e-4);
    EXPECT_EQ(base::lasting_bytes(), before);
    expect_near(engine.run({counted(f32, {5, 72})})[0], reference.run({counted(f32, {5, 72})})[0],
                1e-4);
  };
  check(folded);
  check(nested);
}

TEST_F(CudaMemory, EnginesAreTrimmedWhileOthersRun) {
  Engine engine(f, on_cuda(2));
  engine.prepare(std::vector<Tensor>{square(4)});
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 10; ++k) {
        const std::int64_t n = 2 + (k * 7 + t * 3) % 20;
        EXPECT_EQ(engine.run({Tensor::full(f32, {n, n}, 0)})[0].to_doubles()[0],
                  static_cast<double>(1 / static_cast<float>(n) + static_cast<float>(n)));
      }
      --running;
    });
  while (running > 0) engine.trim();
  for (std::thread& thread : threads) thread.join();
  engine.trim();
  EXPECT_EQ(pool().stats().cached_bytes, 0u);
}

/// What is under way stays, and trim() does not wait for it.
TEST_F(CudaMemory, TrimLeavesWhatIsUnderWay) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto stream = runtime_->device().make_stream();
  EngineOptions options = on_cuda();
  options.stream = stream->native();
  Engine engine(f, options);
  const Tensor x = square(50).to(cuda_device());
  const std::vector<double> want = engine.run({x})[0].to_doubles();
  const Tensor y = engine.run({x})[0];
  EXPECT_THAT(recorded([&] { engine.trim(); }),
              ::testing::Not(::testing::HasSubstr("synchronize")));
  EXPECT_EQ(y.to_doubles(), want);
}

TEST_F(CudaMemory, CapsOfEnginesHoldWhileTheyLive) {
  const Tensor small = square(8);
  const Tensor large = square(1000);
  pool().trim();
  runtime_->pinned().trim();
  const std::size_t cap = pool().stats().in_use_bytes + (std::size_t{2} << 20);
  EngineOptions options = on_cuda();
  {
    options.memory_cap = cap;
    Engine engine(f, options);
    EXPECT_EQ(engine.memory().device.cap_bytes, cap);
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(engine.run({small})[0].count(), 64);
      EXPECT_THROW(engine.run({large}), OutOfMemory);
      EXPECT_LE(all_of(engine.memory().device), cap);
    }
    EXPECT_EQ(engine.run({small})[0].count(), 64);
  }
  options.memory_cap = 0;
  options.pinned_memory_cap = std::size_t{1} << 20;
  {
    Engine engine(f, options);
    EXPECT_EQ(engine.memory().device.cap_bytes, 0u);
    EXPECT_THAT(text_of<OutOfMemory>([&] { engine.run({large}); }),
                ::testing::HasSubstr("pinned memory"));
    EXPECT_EQ(engine.run({large.to(cuda_device())})[0].count(), 1000 * 1000) << "through none";
    EXPECT_EQ(engine.run({small})[0].count(), 64);
  }
  EXPECT_EQ(pool().stats().cap_bytes + runtime_->pinned().stats().cap_bytes, 0u);
  EXPECT_EQ(Engine(f, on_cuda()).run({large})[0].count(), 1000 * 1000);
}

}  // namespace
}  // namespace heddle::testing
