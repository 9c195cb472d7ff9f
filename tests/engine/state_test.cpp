// States: inputs that the graph writes; passes of the embedder.
#include <algorithm>
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "heddle/error.h"
#include "heddle/heddle.h"
#include "tests/support/error_text.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

using heddle::testing::text_of;

hd::Tensor put(const hd::Tensor& x, const hd::Tensor& values, const hd::Tensor& at) {
  const hd::Tensor operands[] = {x, values, at};
  return hd::apply("index_put", operands)[0];
}

hd::Tensor floats(std::initializer_list<float> values) {
  return hd::Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())});
}
hd::Tensor index(std::int64_t k) { return hd::Tensor::of<std::int64_t>({k}, {1}); }

/// One step of a cache: the new element goes in, what is there is summed.
hd::Tensor step(const hd::Tensor& cache, const hd::Tensor& value, const hd::Tensor& at) {
  hd::assign(cache, put(cache, value, at));
  return hd::sum(cache * 2.0f, {0});
}

TEST(State, IsUpdatedInTheCallersMemory) {
  hd::Engine engine(step);
  hd::Tensor cache = hd::Tensor::zeros(hd::f32, {4});
  const void* const memory = cache.data();
  EXPECT_EQ(engine.run({cache, floats({1}), index(0)})[0].item(), 2);
  EXPECT_EQ(engine.run({cache, floats({5}), index(2)})[0].item(), 12);
  EXPECT_THAT(cache.to_doubles(), ElementsAre(1, 0, 5, 0));
  EXPECT_EQ(cache.data(), memory);
  EXPECT_EQ(engine.stats().traces, 1u);
}

// All write-backs copy what was there before any of them, on the evaluator too.
TEST(State, TwoStatesChangePlaces) {
  for (const hd::Device& device : {hd::Device::cpu(), hd::Device::reference()}) {
    SCOPED_TRACE(device.to_string());
    hd::Engine engine = hd::parse_ir(
        "graph @main(%x: f32[2], %y: f32[2]) {\n"
        "  write_back %x = %y\n  write_back %y = %x\n  return %x\n}\n",
        {.device = device});
    const hd::Tensor x = floats({1, 2});
    const hd::Tensor y = floats({3, 4});
    EXPECT_THAT(engine.run({x, y})[0].to_doubles(), ElementsAre(1, 2));
    EXPECT_THAT(x.to_doubles(), ElementsAre(3, 4));
    EXPECT_THAT(y.to_doubles(), ElementsAre(1, 2));
  }
}

/// Kernels of a kind in the plan of a call.
std::size_t kernels_of(const Json& plan, std::string_view kind) {
  return static_cast<std::size_t>(std::ranges::count_if(
      plan["kernels"], [&](const auto& kernel) { return kernel["kind"] == kind; }));
}

TEST(State, A2_25_NoOrderMovesAReaderPastTheWriteBack) {
  const auto f = [](const hd::Tensor& x, const hd::Tensor& y) {
    const hd::Tensor reversed = hd::concat({hd::slice(x, 0, 4, 8), hd::slice(x, 0, 0, 4)}, 0);
    hd::Tensor sum = y;
    for (int k = 1; k < 5; ++k) sum = sum + hd::sum(x * k + y, {0}, true);
    hd::assign(x, reversed);
    return sum;
  };
  for (const hd::StepOrder order : {hd::StepOrder::Given, hd::StepOrder::Smallest,
                                    hd::StepOrder::Lpmf, hd::StepOrder::Bfs, hd::StepOrder::Dfs}) {
    hd::Engine engine(f, {.disk_cache = false, .fuse = false, .order = order});
    hd::Tensor x = hd::Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8}, {8});
    const std::vector<hd::Tensor> inputs{x, hd::Tensor::zeros(hd::f32, {1})};
    const auto plan = Json::parse(engine.plan_json(inputs));
    std::string state;
    for (const auto& buffer : plan["buffers"])
      if (buffer["role"] == "input" && buffer["bytes"] == 32) state = buffer["value"];
    std::map<std::string, Json> kernels;
    for (const auto& kernel : plan["kernels"]) kernels[kernel["name"]] = kernel;
    std::size_t written = 0;
    std::size_t last_read = 0;
    const auto has = [&](const Json& list) {
      return std::ranges::find(list, Json(state)) != list.end();
    };
    for (const auto& step : plan["steps"]) {
      const auto& kernel = kernels.at(step["kernel"]);
      if (has(kernel["writes"])) written = step["index"];
      if (has(kernel["reads"])) last_read = std::max<std::size_t>(last_read, step["index"]);
    }
    EXPECT_GT(written, last_read) << plan["steps"].dump(1);
    EXPECT_EQ(engine.run(inputs)[0].item(), 36 * 10);
    EXPECT_THAT(x.to_doubles(), ElementsAre(5, 6, 7, 8, 1, 2, 3, 4));
  }
}

TEST(State, IsUpdatedWithoutACopy) {
  hd::Engine engine([](const hd::Tensor& cache, const hd::Tensor& value, const hd::Tensor& at) {
    hd::assign(cache, put(cache, value, at));
    return hd::sum(cache * 2.0f, {0});
  });
  const std::vector<hd::Tensor> inputs{hd::Tensor::zeros(hd::f32, {1000}), floats({3}), index(7)};
  EXPECT_EQ(engine.run(inputs)[0].item(), 6);
  EXPECT_EQ(engine.stats().in_place, 1u);
  EXPECT_EQ(engine.stats().missed_in_place, 0u);
  const auto plan = Json::parse(engine.plan_json(inputs));
  EXPECT_EQ(kernels_of(plan, "copy"), 0u);
  EXPECT_LT(plan["peak_bytes"], 1000);
  std::vector<std::string> aliases;
  for (const auto& buffer : plan["buffers"])
    if (!buffer["alias_of"].is_null()) aliases.push_back(buffer["alias_of"]);
  EXPECT_THAT(aliases, ElementsAre(plan["buffers"][0]["value"]));
}

/// The old elements are returned, so the new ones are made beside them; the caller is told what it costs.
TEST(State, AMissedReuseIsCountedWithItsBytes) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& v, const hd::Tensor& at) {
    const hd::Tensor old = hd::exp(x);
    return std::vector<hd::Tensor>{put(old, v, at), old};
  });
  const auto outputs = engine.run({floats({0, 0}), floats({5}), index(1)});
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(1, 5));
  EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(1, 1));
  EXPECT_EQ(engine.stats().in_place, 0u);
  EXPECT_EQ(engine.stats().missed_in_place, 1u);
}

TEST(State, TheEvaluatorSaysTheSame) {
  hd::Engine engine(step, {.device = hd::Device::reference()});
  hd::Tensor cache = floats({1, 2, 3, 4});
  EXPECT_EQ(engine.run({cache, floats({9}), index(1)})[0].item(), 34);
  EXPECT_THAT(cache.to_doubles(), ElementsAre(1, 9, 3, 4));
}

TEST(State, AnyValueMayBeAssignedAndTheLastOneStays) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& y) {
    const hd::Tensor before = x + 0.0f;
    hd::assign(x, x + y);
    hd::assign(x, x * 2.0f);
    return std::vector<hd::Tensor>{before, x};
  });
  hd::Tensor x = floats({1, 2});
  const auto outputs = engine.run({x, floats({10, 20})});
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(1, 2));
  EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(22, 44));
  EXPECT_THAT(x.to_doubles(), ElementsAre(22, 44));
  EXPECT_NE(outputs[1].data(), x.data());
}

TEST(State, TwoStatesMayTradePlaces) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& y) {
    const hd::Tensor a = hd::apply("clone", std::array{x})[0];
    const hd::Tensor b = hd::apply("clone", std::array{y})[0];
    hd::assign(x, b);
    hd::assign(y, a);
    return x + y;
  });
  hd::Tensor x = floats({1, 2});
  hd::Tensor y = floats({3, 4});
  EXPECT_THAT(engine.run({x, y})[0].to_doubles(), ElementsAre(4, 6));
  EXPECT_THAT(x.to_doubles(), ElementsAre(3, 4));
  EXPECT_THAT(y.to_doubles(), ElementsAre(1, 2));
}

/// What reads the old elements runs before they go, whatever the order of the results.
TEST(State, OldElementsAreReadFirst) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& v, const hd::Tensor& at) {
    const hd::Tensor old = hd::neg(x);
    const hd::Tensor mean = hd::sum(x, {0});
    hd::assign(x, put(x, v, at));
    return std::vector<hd::Tensor>{x * 1.0f + old, mean};
  });
  hd::Tensor x = floats({1, 2, 3});
  const auto outputs = engine.run({x, floats({10}), index(1)});
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(0, 8, 0));
  EXPECT_EQ(outputs[1].item(), 6);
  EXPECT_THAT(x.to_doubles(), ElementsAre(1, 10, 3));
}

TEST(State, AnIntermediateIsOverwrittenToo) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& v, const hd::Tensor& at) {
    return put(hd::exp(x), v, at);
  });
  const hd::Tensor x = floats({0, 0, 0});
  for (const float value : {5.0f, 6.0f})
    EXPECT_THAT(engine.run({x, floats({value}), index(1)})[0].to_doubles(),
                ElementsAre(1, value, 1));
  EXPECT_EQ(engine.stats().in_place, 1u);
}

/// Constants are folded once, so what is overwritten may not be one of them.
TEST(State, WhatIsComputedFromParametersIsMadeAnewForEachCall) {
  const hd::Tensor table = floats({0, 0, 0});
  hd::Engine engine(
      [table](const hd::Tensor& v, const hd::Tensor& at) { return put(hd::exp(table), v, at); });
  EXPECT_THAT(engine.run({floats({5}), index(1)})[0].to_doubles(), ElementsAre(1, 5, 1));
  EXPECT_THAT(engine.run({floats({6}), index(2)})[0].to_doubles(), ElementsAre(1, 1, 6));
}

/// As masks are made: zeros, of which some are overwritten, and then others.
TEST(State, WhatIsOverwrittenByConstantsIsFolded) {
  const hd::Tensor table = floats({0, 0, 0});
  hd::Engine engine([table](const hd::Tensor& x) {
    const hd::Tensor first = put(hd::exp(table), floats({5}), index(1));
    return x * put(first, floats({7}), index(2));
  });
  const std::vector<hd::Tensor> inputs{floats({1, 2, 3})};
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(1, 10, 21));
  const auto plan = Json::parse(engine.plan_json(inputs));
  EXPECT_EQ(plan.at("folded_steps"), 3);
  EXPECT_EQ(plan.at("steps").size(), 1u);
}

/// What is read between two constants, or written after them by what is no constant, is there as it was.
TEST(State, WhatIsReadBetweenConstantsIsNotFoldedOverIt) {
  const hd::Tensor table = floats({0, 0, 0});
  hd::Engine engine([table](const hd::Tensor& x, const hd::Tensor& at) {
    const hd::Tensor first = put(hd::exp(table), floats({5}), index(1));
    const hd::Tensor between = hd::cumsum(x * first, 0);
    const hd::Tensor second = put(first, floats({7}), index(2));
    return std::vector<hd::Tensor>{between, put(second, floats({9}), at)};
  });
  for (int call = 0; call < 2; ++call) {
    const auto outputs = engine.run({floats({1, 2, 3}), index(0)});
    EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(1, 11, 14));
    EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(9, 5, 7));
  }
}

TEST(State, NothingThatReadsTheOldElementsMovesPastTheWriteBack) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& y) {
    const hd::Tensor old = hd::sum(x, {0});
    hd::assign(x, y * 2.0f);
    return std::vector<hd::Tensor>{hd::sum(x * y, {0}), old};
  });
  hd::Tensor x = floats({1, 2});
  const std::vector<hd::Tensor> inputs{x, floats({3, 4})};
  const auto plan = Json::parse(engine.plan_json(inputs));
  std::vector<std::string> order;
  for (const auto& step : plan["steps"]) order.push_back(step["kernel"]);
  ASSERT_FALSE(order.empty());
  for (const auto& kernel : plan["kernels"]) {
    const auto& writes = kernel["writes"];
    if (std::find(writes.begin(), writes.end(), plan["buffers"][0]["value"]) == writes.end())
      continue;
    EXPECT_EQ(kernel["name"], order.back());
  }
  const auto outputs = engine.run(inputs);
  EXPECT_EQ(outputs[0].item(), 50);
  EXPECT_EQ(outputs[1].item(), 3);
  EXPECT_THAT(x.to_doubles(), ElementsAre(6, 8));
}

TEST(State, OnlyInputsAreStates) {
  const hd::Tensor captured = floats({1, 2});
  hd::Engine other([captured](const hd::Tensor& x) {
    hd::assign(captured, x);
    return x;
  });
  EXPECT_THAT(
      text_of<hd::TraceError>([&] { other.run({floats({1, 2})}); }),
      HasSubstr("expected an input of the callable, got a tensor that the callable captured"));
  hd::Engine between([](const hd::Tensor& x) {
    hd::assign(x + 1.0f, x);
    return x;
  });
  EXPECT_THAT(text_of<hd::TraceError>([&] { between.run({floats({1, 2})}); }),
              HasSubstr("expected an input of the callable, got another value"));
}

TEST(State, KeepsItsTypeAndSizes) {
  hd::Engine dtype([](const hd::Tensor& x) {
    hd::assign(x, hd::cast(x, hd::f64));
    return x;
  });
  EXPECT_THAT(text_of<hd::DTypeError>([&] { dtype.run({floats({1, 2})}); }),
              HasSubstr("assign: value"));
  hd::Engine sizes([](const hd::Tensor& x) {
    hd::assign(x, hd::sum(x, {0}));
    return x;
  });
  EXPECT_THAT(text_of<hd::ShapeError>([&] { sizes.run({floats({1, 2})}); }),
              HasSubstr("assign: value"));
}

TEST(State, OutsideOfATraceTheElementsAreCopied) {
  hd::Tensor x = floats({1, 2});
  hd::assign(x, floats({3, 4}));
  EXPECT_THAT(x.to_doubles(), ElementsAre(3, 4));
  EXPECT_THROW(hd::assign(x, floats({1})), hd::ShapeError);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at))
    text.replace(at, from.size(), to);
  return text;
}

TEST(GraphPass, RewritesTheTextOfTheGraph) {
  hd::EngineOptions options;
  options.passes = {{.name = "relu-to-abs", .run = [](const std::string& graph) {
                       return replaced(graph, "relu(", "abs(");
                     }}};
  const hd::Tensor weights = floats({1, -2});
  hd::Engine engine([weights](const hd::Tensor& x) { return hd::relu(x) + weights; }, options);
  EXPECT_THAT(engine.run({floats({-3, 4})})[0].to_doubles(), ElementsAre(4, 2));
  const auto passes = Json::parse(engine.plan_json(std::vector{floats({-3, 4})}))["passes"];
  EXPECT_THAT(passes.dump(), HasSubstr("relu-to-abs"));
}

TEST(GraphPass, IsHeldToTheInvariants) {
  hd::EngineOptions options;
  options.passes = {{.name = "mine", .run = [](const std::string& graph) {
                       std::string text = graph;
                       const std::size_t call = text.find("index_put(");
                       if (call != std::string::npos)
                         text.insert(text.find(')', call) + 1, " {in_place = [0]}");
                       return text;
                     }}};
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& v,
                       const hd::Tensor& at) { return put(hd::exp(x), v, at); },
                    options);
  EXPECT_THAT(text_of<hd::Error>([&] { engine.run({floats({1, 2, 3}), floats({1}), index(0)}); }),
              HasSubstr("mine: V6 nothing mutates before reinplace at %"));
}

// A window of a state, at a place that sizes tell: that alone is written.
TEST(State, AWindowIsWrittenWhereItLies) {
  hd::Engine engine([](const hd::Tensor& cache, const hd::Tensor& x, const hd::Tensor& before) {
    const hd::Tensor now = hd::slice_scatter(cache, x, 1, before.size(0));
    hd::assign(cache, now);
    return hd::sum(now, {1});
  });
  hd::Tensor cache = hd::Tensor::empty(hd::f32, {2, 4});
  for (int k = 0; k < 8; ++k) cache.data_as<float>()[k] = 1;
  const hd::Tensor x = hd::Tensor::full(hd::f32, {2, 2}, 5);
  EXPECT_EQ(engine.run({cache, x, hd::Tensor::empty(hd::f32, {1})})[0].to_doubles(),
            (std::vector<double>{12, 12}));
  EXPECT_EQ(cache.to_doubles(), (std::vector<double>{1, 5, 5, 1, 1, 5, 5, 1}));
  EXPECT_THROW(engine.run({cache, x, hd::Tensor::empty(hd::f32, {3})}), hd::ShapeError);
  EXPECT_EQ(engine.stats().in_place, 1u);
  EXPECT_EQ(hd::slice_scatter(cache, hd::Tensor::full(hd::f32, {1, 4}, 9), 0, 1).to_doubles(),
            (std::vector<double>{1, 5, 5, 1, 9, 9, 9, 9}));
}

}  // namespace
