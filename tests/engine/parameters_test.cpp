// Parameters get new values while the engine runs.
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "heddle/control_flow.h"
#include "heddle/error.h"
#include "heddle/frontend.h"
#include "heddle/heddle.h"
#include "tests/support/error_text.h"

namespace hd = heddle;
using testing::Each;
using testing::ElementsAre;

namespace {

using heddle::testing::text_of;

hd::Tensor floats(std::initializer_list<float> values) {
  return hd::Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())});
}

std::vector<std::string> names_of(const hd::Engine& engine) {
  std::vector<std::string> names;
  for (const hd::Parameter& parameter : engine.parameters()) names.push_back(parameter.name);
  return names;
}

TEST(Parameters, CapturedOnesAreUpdatedByTheirHandle) {
  const hd::Tensor weights = floats({1, 2});
  hd::Engine engine([weights](const hd::Tensor& x) { return x * weights; });
  const hd::Tensor x = floats({10, 10});
  EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(10, 20));
  engine.update_parameter(weights, floats({3, 4}));
  EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(30, 40));
  EXPECT_THAT(weights.to_doubles(), ElementsAre(1, 2));
  ASSERT_EQ(engine.parameters().size(), 1u);
  EXPECT_THAT(engine.parameters()[0].value.to_doubles(), ElementsAre(3, 4));
}

TEST(Parameters, WhatWasFoldedIsMadeAnewWithTheKernelsThatAreThere) {
  const hd::Tensor weights = floats({0, 1});
  hd::Engine engine([weights](const hd::Tensor& x) { return x + hd::exp(weights * 2.0f); },
                    {.disk_cache = false});
  const hd::Tensor x = floats({0, 0});
  engine.run({x});
  const hd::EngineStats before = engine.stats();
  engine.update_parameter(weights, floats({0, 0}));
  EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(1, 1));
  const hd::EngineStats after = engine.stats();
  EXPECT_EQ(after.traces, before.traces);
  EXPECT_EQ(after.kernels_compiled, before.kernels_compiled);
  EXPECT_EQ(after.recompiles, before.recompiles);
}

TEST(Parameters, EveryExecutableAndLaterTracesReadTheNewValues) {
  const hd::Tensor weights = floats({1, 2});
  hd::Engine engine([weights](const hd::Tensor& x) { return hd::cast(x, hd::f32) * weights; });
  const hd::Tensor as_float = floats({1, 1});
  const hd::Tensor as_int = hd::Tensor::of<std::int32_t>({1, 1}, {2});
  const hd::Tensor as_byte = hd::Tensor::of<std::uint8_t>({1, 1}, {2});
  engine.run({as_float});
  engine.run({as_int});
  engine.update_parameter(weights, floats({5, 6}));
  for (const hd::Tensor& x : {as_float, as_int, as_byte})
    EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(5, 6));
  engine.update_parameter(weights, floats({7, 8}));
  for (const hd::Tensor& x : {as_float, as_int, as_byte})
    EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(7, 8));
  EXPECT_EQ(engine.stats().traces, 3u);
}

TEST(Parameters, TheEvaluatorReadsThemToo) {
  const hd::Tensor weights = floats({1, 2});
  hd::Engine engine([weights](const hd::Tensor& x) { return x * weights; },
                    {.device = hd::Device::reference()});
  engine.run({floats({1, 1})});
  engine.update_parameter(weights, floats({3, 4}));
  EXPECT_THAT(engine.run({floats({1, 1})})[0].to_doubles(), ElementsAre(3, 4));
}

/// x * w + b, with parameters that have names of their own.
struct Named {
  hd::Tensor w = floats({1, 2});
  hd::Tensor b = floats({0, 0});
  hd::Engine engine{[w = w, b = b](const hd::Tensor& x) { return x * w + b; }};
  Named() {
    hd::detail::name_parameter(engine, "weight", w, true);
    hd::detail::name_parameter(engine, "bias", b, true);
  }
};

TEST(Parameters, OfAModelAreKnownByName) {
  Named model;
  EXPECT_THAT(names_of(model.engine), ElementsAre("weight", "bias"));
  model.engine.update_parameters({{"bias", floats({1, 1})}});  // before the first trace
  EXPECT_THAT(model.engine.run({floats({1, 1})})[0].to_doubles(), ElementsAre(2, 3));
  model.engine.update_parameters({{"weight", floats({5, 5})}, {"bias", floats({0, 2})}});
  EXPECT_THAT(model.engine.run({floats({1, 1})})[0].to_doubles(), ElementsAre(5, 7));
  EXPECT_THAT(model.engine.graph_text(std::vector{floats({1, 1})}, false),
              testing::HasSubstr("param f32[2] \"weight\""));
}

TEST(Parameters, AreReadInsideRegionsToo) {
  const hd::Tensor weights = floats({1, 2});
  hd::Engine engine([weights](const hd::Tensor& x) {
    return hd::cond(
        hd::greater(hd::sum(x, {0}), 0.0f), [&](const hd::Tensor& v) { return v * weights; },
        [&](const hd::Tensor& v) { return v + weights; }, x);
  });
  EXPECT_THAT(engine.run({floats({1, 1})})[0].to_doubles(), ElementsAre(1, 2));
  engine.update_parameter(weights, floats({3, 4}));
  EXPECT_THAT(engine.run({floats({1, 1})})[0].to_doubles(), ElementsAre(3, 4));
  EXPECT_THAT(engine.run({floats({-1, -1})})[0].to_doubles(), ElementsAre(2, 3));
}

TEST(Parameters, BadUpdatesNameTheParameterAndChangeNothing) {
  Named model;
  hd::Engine& engine = model.engine;
  EXPECT_EQ(
      text_of<hd::ArgumentError>([&] { engine.update_parameters({{"weigth", floats({1, 1})}}); }),
      "update_parameters: unknown parameter: expected weight, got weigth");
  EXPECT_EQ(text_of<hd::ShapeError>([&] { engine.update_parameters({{"weight", floats({1})}}); }),
            "update_parameters: weight: expected f32[2], got f32[1]");
  EXPECT_EQ(text_of<hd::DTypeError>([&] {
              engine.update_parameters({{"weight", hd::Tensor::of<std::int32_t>({1, 2}, {2})}});
            }),
            "update_parameters: weight: expected f32[2], got i32[2]");
  EXPECT_EQ(
      text_of<hd::ArgumentError>([&] { engine.update_parameters({{"weight", hd::Tensor()}}); }),
      "update_parameters: weight: expected f32[2], got no tensor with data");
  EXPECT_EQ(text_of<hd::ArgumentError>([&] {
              engine.update_parameters({{"weight", floats({1, 1})}, {"weight", floats({2, 2})}});
            }),
            "update_parameters: expected each name once, got weight twice");
  EXPECT_EQ(
      text_of<hd::ArgumentError>([&] { engine.update_parameter(floats({1, 2}), floats({2, 2})); }),
      "update_parameter: captured: expected a handle that the callable captured, after its first "
      "trace, got f32[2]");
  EXPECT_THAT(engine.run({floats({1, 1})})[0].to_doubles(), ElementsAre(1, 2));
}

TEST(Parameters, ScalarsAreConstantsOfTheGraph) {
  const hd::Tensor scale = hd::Tensor::scalar(hd::f32, 2);
  hd::Engine engine([scale](const hd::Tensor& x) { return x * scale; });
  engine.run({floats({1, 1})});
  EXPECT_THAT(names_of(engine), ElementsAre());
  EXPECT_THROW(engine.update_parameter(scale, hd::Tensor::scalar(hd::f32, 3)), hd::ArgumentError);
}

/// A call sees all of the old values or all of the new, whichever plans it finds.
TEST(Parameters, CallsMeanwhileSeeOldOrNewValuesAndNoMixture) {
  const hd::Tensor a = hd::Tensor::full(hd::f32, {64}, 1);
  const hd::Tensor b = hd::Tensor::full(hd::f32, {64}, 1);
  hd::Engine engine([a, b](const hd::Tensor& x) {
    return hd::sum(hd::abs(x * hd::exp(a) - x * hd::exp(b)), {0, 1});
  });
  engine.run({hd::Tensor::full(hd::f32, {1, 64}, 1)});
  const std::string first = engine.parameters()[0].name;
  const std::string second = engine.parameters()[1].name;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int k = 0; k < 3; ++k)
    callers.emplace_back([&, k] {
      for (std::int64_t n = 1; !stop; n = n % 50 + 1)
        if (engine.run({hd::Tensor::full(hd::f32, {n + k, 64}, 1)})[0].item() != 0) ++wrong;
    });
  for (int k = 0; k < 50; ++k) {
    const hd::Tensor value = hd::Tensor::full(hd::f32, {64}, k % 7);
    engine.update_parameters({{first, value}, {second, value}});
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(engine.stats().traces, 1u);
  engine.update_parameters({{first, hd::Tensor::full(hd::f32, {64}, 9)}});
  EXPECT_NE(engine.run({hd::Tensor::full(hd::f32, {1, 64}, 1)})[0].item(), 0);
}

}  // namespace
