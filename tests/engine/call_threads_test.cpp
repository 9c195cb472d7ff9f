// Calls on threads of the engine: few threads for many calls, none lost, none that waits for ever.
#include "engine/call_threads.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "heddle/heddle.h"

namespace heddle::test {
namespace {

using engine::CallThreads;
using Tensors = std::vector<hd::Tensor>;

hd::Tensor number(double value) { return hd::Tensor::full(hd::f32, {1}, value); }
float value_of(const hd::Tensor& tensor) { return *static_cast<const float*>(tensor.data()); }

CallThreads::Call giving(double value, std::function<void()> first = [] {}) {
  return CallThreads::Call([value, first = std::move(first)] {
    first();
    return Tensors{number(value)};
  });
}

TEST(CallThreads, ManyCallsShareFewThreads) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::vector<std::future<Tensors>> results;
  {
    CallThreads threads(3);
    for (int k = 0; k < 200; ++k)
      results.push_back(threads.submit(giving(k, [&] {
        const std::scoped_lock lock(mutex);
        ids.insert(std::this_thread::get_id());
      })));
  }
  for (int k = 0; k < 200; ++k)
    EXPECT_EQ(value_of(results[static_cast<std::size_t>(k)].get()[0]), static_cast<float>(k));
  EXPECT_LE(ids.size(), 3u);
  EXPECT_FALSE(ids.contains(std::this_thread::get_id()));
}

TEST(CallThreads, CallsRunAtOnceUpToTheNumberOfThreads) {
  CallThreads threads(2);
  std::latch both(2);
  auto first = threads.submit(giving(1, [&] { both.arrive_and_wait(); }));
  auto second = threads.submit(giving(2, [&] { both.arrive_and_wait(); }));
  EXPECT_EQ(value_of(first.get()[0]), 1);
  EXPECT_EQ(value_of(second.get()[0]), 2);
}

TEST(CallThreads, ACallMayWaitForOthersThatItSubmits) {
  CallThreads threads(1);
  const auto nested = [&](auto&& self, int depth) -> Tensors {
    if (depth == 0) return {number(7)};
    return threads.submit(CallThreads::Call([&, depth] { return self(self, depth - 1); })).get();
  };
  auto result = threads.submit(CallThreads::Call([&] { return nested(nested, 5); }));
  EXPECT_EQ(value_of(result.get()[0]), 7);
}

TEST(CallThreads, WhatIsThrownComesWithTheFuture) {
  CallThreads threads(1);
  auto result = threads.submit(
      CallThreads::Call([]() -> Tensors { throw std::runtime_error("of the call"); }));
  EXPECT_THROW(result.get(), std::runtime_error);
  EXPECT_EQ(value_of(threads.submit(giving(3)).get()[0]), 3) << "the thread goes on";
}

TEST(CallThreads, DroppedFuturesNeitherBlockNorCancel) {
  std::atomic<int> ran = 0;
  std::latch go(1);
  {
    CallThreads threads(1);
    for (int k = 0; k < 10; ++k)
      (void)threads.submit(giving(k, [&] {
        go.wait();
        ++ran;
      }));
    go.count_down();  // not reached where a future waits when it is dropped
  }
  EXPECT_EQ(ran, 10);
}

TEST(CallThreads, WhoIsToldNeedNotWait) {
  std::vector<float> values;
  std::string failed;
  std::mutex mutex;
  {
    hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
    for (int k = 0; k < 50; ++k)
      engine.submit({number(k)}, [&](std::future<Tensors> call) {
        const Tensors results = call.get();
        const std::scoped_lock lock(mutex);
        values.push_back(value_of(results[0]));
      });
    engine.submit({number(1), number(2)}, [&](std::future<Tensors> call) {
      try {
        call.get();
      } catch (const hd::ArgumentError& error) {
        failed = error.what();
      }
    });
  }  // waits for all
  std::ranges::sort(values);
  ASSERT_EQ(values.size(), 50u);
  for (int k = 0; k < 50; ++k)
    EXPECT_EQ(values[static_cast<std::size_t>(k)], static_cast<float>(k + 1));
  EXPECT_NE(failed, "");
}

TEST(CallThreads, TheLastWhoHoldsTheEngineMayBeToldOfACall) {
  for (int round = 0; round < 20; ++round) {
    auto engine = std::make_shared<hd::Engine>([](const hd::Tensor& x) { return x + 1; });
    std::promise<float> got;
    hd::Engine& used = *engine;
    std::latch released(1);
    used.submit({number(round)}, [&, held = engine](std::future<Tensors> call) {
      released.wait();
      got.set_value(value_of(call.get()[0]));
    });
    engine.reset();
    released.count_down();
    EXPECT_EQ(got.get_future().get(), static_cast<float>(round + 1));
  }
}

TEST(CallThreads, AnEngineTakesManyCallsAtOnce) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
  std::vector<std::future<Tensors>> results;
  for (int k = 0; k < 500; ++k) results.push_back(engine.submit({number(k)}));
  for (int k = 0; k < 500; ++k)
    EXPECT_EQ(value_of(results[static_cast<std::size_t>(k)].get()[0]), static_cast<float>(k + 1));
}

}  // namespace
}  // namespace heddle::test
