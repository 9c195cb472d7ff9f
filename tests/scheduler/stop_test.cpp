// Work that its caller ends early.
#include "scheduler/stop.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "heddle/error.h"
#include "scheduler/executor.h"

namespace heddle::scheduler {
namespace {

/// Counts iterations of a stage, and asks to stop in one of them.
struct Counted {
  std::atomic<int>* iterations;
  std::stop_source* asks = nullptr;
};

void count(const BoundStep& step, std::int64_t begin, std::int64_t end, int, std::int32_t*) {
  const auto& counted = *static_cast<const Counted*>(step.code);
  for (std::int64_t k = begin; k < end; ++k) {
    ++*counted.iterations;
    if (k == 17 && counted.asks != nullptr) counted.asks->request_stop();
  }
}

BoundStep step_of(const Counted& counted) {
  BoundStep step{};
  step.run = count;
  step.code = &counted;
  step.extent = 64;
  step.work = 10'000'000;
  return step;
}

TEST(Stop, AStageThatHasBegunIsFinishedAndNoneFollows) {
  for (const int threads : {1, 3}) {
    Executor executor(threads);
    std::stop_source source;
    std::atomic<int> iterations{0};
    const Counted plain{&iterations};
    const Counted asking{&iterations, &source};
    const BoundStep steps[] = {step_of(plain), step_of(asking), step_of(plain)};
    const BoundStage stages[] = {{0, 1}, {1, 1}, {2, 1}};
    const std::stop_token token = source.get_token();
    {
      const StopScope scope(token);
      EXPECT_THROW(executor.run(steps, stages), Cancelled);
      EXPECT_EQ(iterations, 2 * 64);
      EXPECT_THROW(executor.run(steps, stages), Cancelled) << "before the first one";
      EXPECT_EQ(iterations, 2 * 64);
    }
    EXPECT_EQ(executor.run(steps, stages), 0);
    EXPECT_EQ(iterations, 5 * 64);
  }
}

/// Several threads call, and another one asks one of them to stop, whenever it comes to that.
TEST(Stop, EndsTheCallsOfItsThreadAlone) {
  Executor executor(3);
  std::stop_source source;
  std::atomic<int> iterations{0};
  const Counted plain{&iterations};
  const BoundStep steps[] = {step_of(plain), step_of(plain)};
  const BoundStage stages[] = {{0, 1}, {1, 1}};
  std::thread stopped([&] {
    const std::stop_token token = source.get_token();
    const StopScope scope(token);
    EXPECT_THROW(
        {
          for (;;) executor.run(steps, stages);
        },
        Cancelled);
  });
  std::vector<std::thread> others;
  for (int t = 0; t < 2; ++t)
    others.emplace_back([&] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ(executor.run(steps, stages), 0);
    });
  while (iterations < 1000) std::this_thread::yield();
  source.request_stop();
  stopped.join();
  for (std::thread& thread : others) thread.join();
}

TEST(Stop, ScopesNest) {
  EXPECT_EQ(watched_stop(), nullptr);
  std::stop_source source;
  const std::stop_token outer = source.get_token();
  const StopScope around(outer);
  {
    const std::stop_token nobody;
    const StopScope within(nobody);
    EXPECT_EQ(watched_stop(), &nobody);
    source.request_stop();
    EXPECT_NO_THROW(end_if_stopped());
  }
  EXPECT_EQ(watched_stop(), &outer);
  EXPECT_THROW(end_if_stopped(), Cancelled);
}

}  // namespace
}  // namespace heddle::scheduler
