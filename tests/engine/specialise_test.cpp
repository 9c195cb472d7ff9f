// Executables for exact sizes, compiled in the background.
#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "heddle/heddle.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

namespace {

hd::Tensor rows_of_ones(std::int64_t rows) { return hd::Tensor::full(hd::f32, {rows, 24}, 1); }

hd::Tensor row_sums(const hd::Tensor& x) { return hd::sum(hd::exp(x - 1.0f), {1}); }

std::vector<std::string> guards_of(hd::Engine& engine, const hd::Tensor& input) {
  return Json::parse(engine.plan_json(std::vector{input}))["guards"]
      .get<std::vector<std::string>>();
}

TEST(Specialise, TakesThePlaceOfTheGeneralOneForJustItsSizes) {
  hd::Engine engine(row_sums, {.threads = 1, .disk_cache = false, .specialise_after = 3});
  for (int k = 0; k < 2; ++k) engine.run({rows_of_ones(8)});
  engine.wait_for_specialisations();
  EXPECT_EQ(engine.stats().specialisations, 0u);
  EXPECT_THAT(guards_of(engine, rows_of_ones(8)), Each(Not(HasSubstr("just this size"))));
  engine.run({rows_of_ones(8)});
  engine.wait_for_specialisations();
  EXPECT_THAT(engine.run({rows_of_ones(8)})[0].to_doubles(), Each(24));
  EXPECT_THAT(guards_of(engine, rows_of_ones(8)),
              Contains(HasSubstr("s0 == 8 (compiled for just this size after 3 calls)")));
  EXPECT_THAT(engine.run({rows_of_ones(5)})[0].to_doubles(),
              testing::AllOf(testing::SizeIs(5), Each(24)));
  EXPECT_THAT(guards_of(engine, rows_of_ones(5)), Each(Not(HasSubstr("just this size"))));
  const hd::EngineStats stats = engine.stats();
  EXPECT_EQ(stats.specialisations, 1u);
  EXPECT_EQ(stats.traces, 1u);
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_THAT(stats.recompiles, testing::IsEmpty());
  EXPECT_GT(stats.kernels_compiled, 1u) << "the sizes are in the kernel";
}

TEST(Specialise, IsNotDoneWhereNobodyAsksOrNoSizeIsOpen) {
  hd::Engine never(row_sums, {.threads = 1});
  hd::Engine fixed([](const hd::Tensor& x) { return x + 1; },
                   {.threads = 1, .specialise_after = 2});
  for (int k = 0; k < 5; ++k) {
    never.run({rows_of_ones(8)});
    fixed.run({hd::Tensor::scalar(hd::f32, 1)});
  }
  never.wait_for_specialisations();
  fixed.wait_for_specialisations();
  EXPECT_EQ(never.stats().specialisations, 0u);
  EXPECT_EQ(fixed.stats().specialisations, 0u);
}

/// The compile in the background is held up; calls of the same and of other sizes return all the same.
TEST(Specialise, NoCallWaitsForIt) {
  std::atomic<bool> armed{false};
  std::atomic<bool> compiling{false};
  std::atomic<bool> go_on{false};
  hd::EngineOptions options{.threads = 1, .specialise_after = 2};
  options.passes.push_back({"hold", hd::GraphPass::Point::First, [&](const std::string& graph) {
                              if (armed) {
                                compiling = true;
                                compiling.notify_all();
                                go_on.wait(false);
                              }
                              return graph;
                            }});
  hd::Engine engine(row_sums, options);
  engine.run({rows_of_ones(8)});
  armed = true;
  engine.run({rows_of_ones(8)});
  compiling.wait(false);
  EXPECT_THAT(engine.run({rows_of_ones(8)})[0].to_doubles(), Each(24));
  EXPECT_THAT(engine.run({rows_of_ones(3)})[0].to_doubles(), Each(24));
  EXPECT_EQ(engine.stats().specialisations, 0u);
  go_on = true;
  go_on.notify_all();
  engine.wait_for_specialisations();
  EXPECT_EQ(engine.stats().specialisations, 1u);
}

TEST(Specialise, AFailureIsToldOnceAndTheGeneralOneGoesOn) {
  std::atomic<int> traced{0};
  std::vector<std::string> lines;
  hd::EngineOptions options{.threads = 1, .specialise_after = 2};
  options.log = [&](std::string_view line) { lines.emplace_back(line); };
  options.passes.push_back({"refuse", hd::GraphPass::Point::First, [&](const std::string& graph) {
                              if (++traced > 1) throw std::runtime_error("no more compiles");
                              return graph;
                            }});
  hd::Engine engine(row_sums, options);
  for (int k = 0; k < 6; ++k) EXPECT_THAT(engine.run({rows_of_ones(8)})[0].to_doubles(), Each(24));
  engine.wait_for_specialisations();
  EXPECT_EQ(engine.stats().specialisations, 0u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("s0 == 8 keeps the general executable: "));
  EXPECT_THAT(lines[0], HasSubstr("no more compiles"));
}

/// Neither what a pass throws nor what the log throws about it reaches anybody.
TEST(Specialise, AFailureThatCannotBeToldEndsNothing) {
  std::atomic<int> traced{0};
  std::atomic<int> told{0};
  hd::EngineOptions options{.threads = 1, .specialise_after = 1};
  options.log = [&](std::string_view) {
    ++told;
    throw std::runtime_error("the log is full");
  };
  options.passes.push_back({"refuse", hd::GraphPass::Point::First, [&](const std::string& graph) {
                              if (++traced > 1) throw 1;
                              return graph;
                            }});
  hd::Engine engine(row_sums, options);
  for (int k = 0; k < 3; ++k) EXPECT_THAT(engine.run({rows_of_ones(8)})[0].to_doubles(), Each(24));
  engine.wait_for_specialisations();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(engine.stats().specialisations, 0u);
}

TEST(Specialise, ReadsUpdatedParameters) {
  const hd::Tensor weights = hd::Tensor::full(hd::f32, {24}, 2);
  hd::Engine engine([weights](const hd::Tensor& x) { return x * hd::exp(weights - 2.0f); },
                    {.threads = 1, .specialise_after = 1});
  engine.run({rows_of_ones(4)});
  engine.wait_for_specialisations();
  ASSERT_EQ(engine.stats().specialisations, 1u);
  EXPECT_THAT(engine.run({rows_of_ones(4)})[0].to_doubles(), Each(1));
  engine.update_parameter(weights, hd::Tensor::full(hd::f32, {24}, 3));
  for (const std::int64_t rows : {4, 7})
    EXPECT_THAT(engine.run({rows_of_ones(rows)})[0].to_doubles(),
                Each(testing::DoubleNear(2.71828, 1e-4)));
  EXPECT_THAT(guards_of(engine, rows_of_ones(4)), Contains(HasSubstr("just this size")));
}

TEST(Specialise, KeepsAsManyAsExecutables) {
  hd::Engine engine(row_sums, {.threads = 1, .max_executables = 2, .specialise_after = 1});
  for (std::int64_t rows = 1; rows < 6; ++rows) {
    engine.run({rows_of_ones(rows)});
    engine.wait_for_specialisations();
  }
  EXPECT_EQ(engine.stats().specialisations, 5u);
  EXPECT_EQ(engine.stats().compiles, 1u);
  for (std::int64_t rows = 1; rows < 6; ++rows)
    EXPECT_THAT(engine.run({rows_of_ones(rows)})[0].to_doubles(), Each(24));
}

/// Sizes in nested graphs and states are exact too.
TEST(Specialise, BranchesAndStates) {
  hd::Engine engine(
      [](const hd::Tensor& state, const hd::Tensor& x) {
        const hd::Tensor next = hd::cond(
            hd::greater(hd::sum(x, {0, 1}), 0.0f), [&](const hd::Tensor& y) { return state + y; },
            [&](const hd::Tensor& y) { return state - y; }, x);
        hd::assign(state, next);
        return hd::sum(next, {0, 1});
      },
      {.threads = 1, .specialise_after = 1});
  hd::Tensor state = hd::Tensor::zeros(hd::f32, {2, 24});
  for (int k = 1; k < 4; ++k) {
    EXPECT_EQ(engine.run({state, rows_of_ones(2)})[0].item(), 48 * k);
    engine.wait_for_specialisations();
  }
  EXPECT_EQ(engine.stats().specialisations, 1u);
  EXPECT_THAT(state.to_doubles(), Each(3));
}

TEST(Specialise, AnEngineMayGoWhileItCompiles) {
  for (int k = 0; k < 5; ++k) {
    hd::Engine engine(row_sums, {.threads = 1, .specialise_after = 1});
    for (std::int64_t rows = 1; rows < 5; ++rows) engine.run({rows_of_ones(rows)});
  }
}

}  // namespace
