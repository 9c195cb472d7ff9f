// Results of custom ops whose sizes depend on values: memory, events, errors.
#include <gmock/gmock.h>
#include <thread>

#include "heddle/heddle.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// What positive() says its sizes are; tests make it lie.
std::vector<hd::Sizes> (*told)(const hd::KernelCall& call) = nullptr;

std::vector<hd::Sizes> count_positive(const hd::KernelCall& call) {
  std::int64_t count = 0;
  for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
    count += call.tensor(0).as<float>()[k] > 0 ? 1 : 0;
  return {{count}, {count, 2}};
}

/// The positive elements, and pairs of their positions and ranks; counts its calls in `calls`.
const hd::RegisteredOp& positive() {
  static const hd::RegisteredOp op =
      hd::register_op({.schema = "tl::positive(Tensor x, Tensor(a!) calls) -> (Tensor, Tensor)",
                       .shape =
                           [](const hd::ShapeCall& call) {
                             const hd::SymInt count = call.unbacked();
                             return std::vector{hd::TensorType{hd::f32, {count}},
                                                hd::TensorType{hd::i64, {count, 2}}};
                           },
                       .cpu =
                           [](const hd::KernelCall& call) {
                             std::int64_t next = 0;
                             for (std::int64_t k = 0; k < call.tensor(0).count(); ++k) {
                               if (!(call.tensor(0).as<float>()[k] > 0)) continue;
                               call.results[0].as<float>()[next] = call.tensor(0).as<float>()[k];
                               call.results[1].as<std::int64_t>()[2 * next] = k;
                               call.results[1].as<std::int64_t>()[2 * next + 1] = next;
                               ++next;
                             }
                             call.tensor(1).as<float>()[0] += 1;
                           },
                       .sizes = [](const hd::KernelCall& call) { return told(call); }});
  return op;
}

std::vector<hd::Tensor> kept(const hd::Tensor& x, const hd::Tensor& calls) {
  const hd::Tensor scaled = x * 2.0f;
  const hd::Tensor counter = calls + 0.0f;
  const auto results = positive()(scaled, counter);
  return {exp(results[0]), results[1] + results[1], counter};
}

class LateSizes : public testing::Test {
 protected:
  void SetUp() override { told = count_positive; }
};

const hd::Tensor kCalls = hd::Tensor::of<float>({5}, {1});

hd::Tensor numbers(std::vector<float> values) {
  hd::Tensor x = hd::Tensor::empty(hd::f32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), x.data_as<float>());
  return x;
}

std::string text(const hd::RunEvent& event) {
  const char* kind = event.kind == hd::RunEvent::Kind::Alloc    ? "alloc "
                     : event.kind == hd::RunEvent::Kind::Launch ? "launch "
                                                                : "free ";
  return kind + event.value + (event.bytes == 0 ? "" : " " + std::to_string(event.bytes));
}

TEST_F(LateSizes, TheRunTraceTellsTheBytesOfThisRun) {
  hd::Engine engine(kept);
  for (const auto& [x, count] : {std::pair(numbers({1, -2, 3, 4, -5}), 3),
                                 {numbers({-1, -2}), 0},
                                 {numbers({1, 1, 1, 1, 1, 1, 1}), 7}}) {
    std::vector<hd::Tensor> outputs;
    std::vector<std::string> events;
    for (const hd::RunEvent& event : engine.run_trace(std::vector{x, kCalls}, &outputs))
      events.push_back(text(event));
    const auto bytes = [](std::int64_t n) { return n == 0 ? "" : " " + std::to_string(n); };
    const std::string given = bytes(4 * x.count());
    const std::string values = bytes(4 * count);
    const std::string places = bytes(16 * count);
    EXPECT_THAT(events,
                ElementsAre("alloc v0" + given, "launch mul", "alloc v1 4", "launch add",
                            "launch clone", "free v1 4", "alloc v2" + values, "alloc v3" + places,
                            "launch tl::positive", "free v0" + given, "launch exp",
                            "free v2" + values, "launch add_1", "free v3" + places));
    EXPECT_THAT(outputs[0].sizes(), ElementsAre(count));
    EXPECT_THAT(outputs[1].sizes(), ElementsAre(count, 2));
    EXPECT_THAT(outputs[2].to_doubles(), ElementsAre(6));
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST_F(LateSizes, RunIntoChecksTheSizesWhenTheyAreKnown) {
  hd::Engine engine(kept);
  const std::vector inputs{numbers({1, -2, 3}), kCalls};
  std::vector outputs{hd::Tensor::zeros(hd::f32, {2}), hd::Tensor::zeros(hd::i64, {2, 2}),
                      hd::Tensor::zeros(hd::f32, {1})};
  engine.run_into(inputs, outputs);
  EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(0, 0, 4, 2));
  outputs[0] = hd::Tensor::zeros(hd::f32, {3});
  try {
    engine.run_into(inputs, outputs);
    FAIL();
  } catch (const hd::ShapeError& error) {
    EXPECT_STREQ(error.what(), "run_into: output 0: expected row-major f32[2], got f32[3]");
  }
  outputs[0] = hd::Tensor::zeros(hd::f32, {2, 1});
  try {
    engine.run_into(inputs, outputs);
    FAIL();
  } catch (const hd::ShapeError& error) {
    EXPECT_STREQ(error.what(), "run_into: output 0: expected row-major f32[?], got f32[2, 1]");
  }
  EXPECT_THAT(engine.run(inputs)[0].sizes(), ElementsAre(2));
}

TEST_F(LateSizes, WhatTheOpTellsIsChecked) {
  hd::Engine engine(kept);
  const std::vector inputs{numbers({1, -2, 3}), kCalls};
  const auto fails = [&](auto lie, const std::string& what) {
    told = lie;
    try {
      engine.run(inputs);
      ADD_FAILURE() << what;
    } catch (const hd::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
    told = count_positive;
    EXPECT_THAT(engine.run(inputs)[0].sizes(), ElementsAre(2));
  };
  using Sizes = std::vector<hd::Sizes>;
  fails([](const hd::KernelCall&) { return Sizes{{2}}; },
        "tl::positive: sizes of the results at %");
  fails([](const hd::KernelCall&) { return Sizes{{2}}; }, "expected those of 2 results, got 1");
  fails([](const hd::KernelCall&) { return Sizes{{2}, {2}}; },
        "expected [u0, 2] of result 1, got [2]");
  fails([](const hd::KernelCall&) { return Sizes{{2}, {3, 2}}; },
        "expected [u0, 2] of result 1, got [3, 2]");
  fails([](const hd::KernelCall&) { return Sizes{{-1}, {-1, 2}}; },
        "expected [u0] of result 0, got [-1]");
  fails([](const hd::KernelCall&) -> Sizes { throw std::runtime_error("no idea"); },
        "tl::positive: the function `sizes` failed at %");
  fails([](const hd::KernelCall&) -> Sizes { throw 1; }, "an exception that is no std::exception");
}

TEST_F(LateSizes, AnOpWithoutAFunctionThatTellsThemIsRefused) {
  static const hd::RegisteredOp mute =
      hd::register_op({.schema = "tl::mute(Tensor x) -> Tensor",
                       .shape =
                           [](const hd::ShapeCall& call) {
                             return std::vector{hd::TensorType{hd::f32, {call.unbacked()}}};
                           },
                       .cpu = [](const hd::KernelCall&) {}});
  hd::Engine engine([](const hd::Tensor& x) { return mute(x)[0]; });
  try {
    engine.run({numbers({1})});
    FAIL();
  } catch (const hd::ArgumentError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("tl::mute: sizes known only at run time at "));
    EXPECT_THAT(error.what(),
                testing::EndsWith("expected a function `sizes` that tells them, got none"));
  }
}

TEST_F(LateSizes, ThreadsRunDifferentSizesAtOnce) {
  hd::Engine engine(kept);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 50; ++k) {
        const int count = (k * 7 + t * 13) % 40;
        std::vector<float> values(static_cast<std::size_t>(count), 1.0f);
        values.insert(values.end(), static_cast<std::size_t>(t), -1.0f);
        const auto outputs = engine.run({numbers(values), kCalls});
        EXPECT_THAT(outputs[0].sizes(), ElementsAre(count));
        EXPECT_EQ(outputs[1].to_doubles().size(), static_cast<std::size_t>(2 * count));
        EXPECT_THAT(outputs[2].to_doubles(), ElementsAre(6));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST_F(LateSizes, ThePlanSaysWhatOnlyTheRunTells) {
  hd::Engine engine(kept);
  const auto plan = Json::parse(engine.plan_json(std::vector{numbers({1, 2}), kCalls}));
  std::vector<int> phases;
  for (const auto& step : plan["steps"]) phases.push_back(step["phase"]);
  EXPECT_TRUE(std::is_sorted(phases.begin(), phases.end()));
  EXPECT_EQ(phases.front(), 0);
  EXPECT_EQ(phases.back(), 1);
  int unknown = 0;
  for (const auto& buffer : plan["buffers"]) unknown += buffer["bytes"].is_null() ? 1 : 0;
  EXPECT_EQ(unknown, 4);  // both results, and what is computed of them
}

TEST_F(LateSizes, AStateIsUpdatedFromThem) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& total) {
    const hd::Tensor counter = total * 0.0f;
    const hd::Tensor values = positive()(x, counter)[0];
    hd::assign(total, total + hd::sum(values, {0}, true));
    return values;
  });
  const hd::Tensor total = hd::Tensor::zeros(hd::f32, {1});
  engine.run({numbers({1, -2, 3}), total});
  engine.run({numbers({-1, 5}), total});
  EXPECT_THAT(total.to_doubles(), ElementsAre(9));
}

}  // namespace
