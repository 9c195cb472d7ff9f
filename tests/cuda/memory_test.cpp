// Memory of the CUDA device: what the pool says it has is what the driver gave, never more than the cap.
#include <gmock/gmock.h>

#include "engine/cuda_runtime.h"
#include "tests/cuda/support.h"

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

}  // namespace
}  // namespace heddle::testing
