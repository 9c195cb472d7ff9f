// Calls that their caller ends early.
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stop_token>
#include <thread>

#include "heddle/heddle.h"
#include "memory/allocator.h"
#include "tests/support/error_text.h"

namespace heddle::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::atomic<int> steps_taken = 0;

/// A copy of x; counts, and asks `source` to stop when so many have run.
std::stop_source* stopped_by_step = nullptr;
int stops_at = 0;
Tensor counted(const Tensor& x) {
  static const RegisteredOp op =
      register_op({.schema = "stop::counted(Tensor x) -> Tensor",
                   .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
                   .cpu =
                       [](const KernelCall& call) {
                         std::copy_n(call.tensor(0).as<const float>(), call.tensor(0).count(),
                                     call.results[0].as<float>());
                         if (++steps_taken == stops_at && stopped_by_step != nullptr)
                           stopped_by_step->request_stop();
                       }});
  return op(x)[0];
}

Tensor row() { return Tensor::of<float>({1, 2, 3}, {3}); }

/// Steps that cannot be one kernel.
Tensor six_steps(const Tensor& x) {
  Tensor y = x;
  for (int k = 0; k < 6; ++k) y = counted(y * 2.0f);
  return y;
}

/// Goes on until it is stopped.
Tensor endless(const Tensor& x) {
  return while_loop(
      x, [](const Tensor& s) { return greater(sum(abs(s)) + 1.0f, 0.0f); },
      [](const Tensor& s) { return counted(s * 0.5f); });
}

constexpr const char* kEnded = "run: ended before its last step, as its caller asked";

TEST(Stop, ACallThatHasNotBegunDoesNothing) {
  Engine engine([](const Tensor& x, const Tensor& state) {
    const Tensor next = counted(state + x);
    assign(state, next);
    return next * 2.0f;
  });
  const Tensor state = Tensor::zeros(f32, {3});
  engine.run({row(), state});
  const int before = steps_taken;
  std::stop_source source;
  source.request_stop();
  {
    const StopScope scope(source.get_token());
    EXPECT_EQ(text_of<Cancelled>([&] { engine.run({row(), state}); }), kEnded);
    std::vector<Tensor> into{Tensor::full(f32, {3}, 7)};
    const std::vector<Tensor> inputs{row(), state};
    EXPECT_EQ(text_of<Cancelled>([&] { engine.run_into(inputs, into); }), kEnded);
    EXPECT_THAT(into[0].to_doubles(), Each(7));
    EXPECT_EQ(text_of<Cancelled>([&] { engine.submit({row(), state}).get(); }), kEnded);
    EXPECT_EQ(text_of<Cancelled>([&] { engine.run_named({{"input0", row()}, {"input1", state}}); }),
              kEnded);
  }
  EXPECT_EQ(steps_taken, before);
  EXPECT_THAT(state.to_doubles(), ElementsAre(1, 2, 3));
  EXPECT_THAT(engine.run({row(), state})[0].to_doubles(), ElementsAre(4, 8, 12));
}

TEST(Stop, NoStepFollowsTheOneThatAsked) {
  Engine engine(six_steps, {.threads = 1});
  EXPECT_THAT(engine.run({row()})[0].to_doubles(), ElementsAre(64, 128, 192));
  for (int at = 1; at <= 6; ++at) {
    std::stop_source source;
    stopped_by_step = &source;
    stops_at = at;
    steps_taken = 0;
    const StopScope scope(source.get_token());
    EXPECT_EQ(text_of<Cancelled>([&] { engine.run({row()}); }), at < 6 ? kEnded : "no error");
    EXPECT_EQ(steps_taken, at);
  }
  stopped_by_step = nullptr;
  EXPECT_THAT(engine.run({row()})[0].to_doubles(), ElementsAre(64, 128, 192));
}

TEST(Stop, EndsALoopThatWouldNotEnd) {
  for (const int threads : {1, 3}) {
    Engine engine(endless, {.threads = threads});
    engine.prepare(std::vector<Tensor>{row()});
    memory::CachingAllocator& host = memory::CachingAllocator::host();
    std::size_t in_use = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::stop_source source;
      steps_taken = 0;
      std::thread asks([&] {
        while (steps_taken < 20) std::this_thread::yield();
        source.request_stop();
      });
      {
        const StopScope scope(source.get_token());
        EXPECT_EQ(text_of<Cancelled>([&] { engine.run({row()}); }), kEnded);
      }
      asks.join();
      engine.trim();
      if (repeat == 0) in_use = host.stats().in_use_bytes;
      EXPECT_EQ(host.stats().in_use_bytes, in_use);
    }
  }
}

/// In a loop that grows, in a branch, of a call that another thread runs.
TEST(Stop, EndsWhatIsNestedAndSubmitted) {
  Engine engine([](const Tensor& go, const Tensor& x) {
    return cond(
        go,
        [&] {
          return while_loop(
              x, [](const Tensor& s) { return greater(sum(abs(s)) + 1.0f, 0.0f); },
              [](const Tensor& s) { return concat({counted(s * 0.5f), slice(s, 0, 0, 1)}, 0); });
        },
        [&] { return x * 3.0f; });
  });
  const auto flag = [](bool value) { return Tensor::scalar_int(boolean, value ? 1 : 0); };
  EXPECT_THAT(engine.run({flag(false), row()})[0].to_doubles(), ElementsAre(3, 6, 9));
  std::stop_source source;
  steps_taken = 0;
  std::future<std::vector<Tensor>> result;
  {
    const StopScope scope(source.get_token());
    result = engine.submit({flag(true), row()});
  }
  while (steps_taken < 5) std::this_thread::yield();
  source.request_stop();
  EXPECT_EQ(text_of<Cancelled>([&] { result.get(); }), kEnded);
  EXPECT_THAT(engine.run({flag(false), row()})[0].to_doubles(), ElementsAre(3, 6, 9));
}

TEST(Stop, ScopesNestAndAreOfTheirThread) {
  Engine engine(six_steps);
  engine.run({row()});
  const auto ends = [&] { return text_of<Cancelled>([&] { engine.run({row()}); }) == kEnded; };
  std::stop_source outer, inner;
  outer.request_stop();
  EXPECT_FALSE(ends());
  {
    const StopScope around(outer.get_token());
    EXPECT_TRUE(ends());
    {
      const StopScope within(inner.get_token());
      EXPECT_FALSE(ends());
      const StopScope nobody{std::stop_token()};
      EXPECT_FALSE(ends());
    }
    EXPECT_TRUE(ends());
    std::thread([&] { EXPECT_FALSE(ends()); }).join();
  }
  EXPECT_FALSE(ends());
}

/// A cache that a call was about to grow is as it was: the call may be made again.
TEST(Stop, ACacheThatACallWasToGrowKeepsItsElements) {
  Engine engine(
      [](const Tensor& x, const Tensor& cache) {
        const Tensor now = counted(x * 2.0f);
        return std::pair(concat({cache, now}, 0), counted(now + 1.0f));
      },
      {.threads = 1, .append = {"input1"}, .append_room = 16});
  Tensor cache = engine.run({row(), Tensor::zeros(f32, {0})})[0];
  for (const int at : {1, 2}) {
    std::stop_source source;
    stopped_by_step = &source;
    stops_at = at;
    steps_taken = 0;
    const StopScope scope(source.get_token());
    const std::string text = text_of<Cancelled>([&] { engine.run({row(), cache}); });
    EXPECT_TRUE(text == kEnded || (at == 2 && text == "no error")) << text;
  }
  stopped_by_step = nullptr;
  EXPECT_THAT(cache.to_doubles(), ElementsAre(2, 4, 6));
  cache = engine.run({row(), cache})[0];
  EXPECT_THAT(cache.to_doubles(), ElementsAre(2, 4, 6, 2, 4, 6));
}

}  // namespace
}  // namespace heddle::testing
