// Sizes that an exporter computes in floating point and cuts to integers again.

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"
#include "tests/onnx/nested_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::Each;
using testing::ElementsAre;

struct Step {
  std::string op;
  std::vector<float> constant{};  ///< the second operand, if any
};

/// y = x[: steps(size of x)], the size converted to f32 in between.
ModelBuilder sliced(const std::string& size, const std::vector<Step>& steps) {
  ModelBuilder model;
  model.input("x", {size}).output("y").ints("zero", {0});
  model.node("Shape", {"x"}, {"shape"});
  ModelBuilder::set_int(model.node("Cast", {"shape"}, {"v"}), "to", TensorProto::FLOAT);
  std::string last = "v";
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const std::string name = "v" + std::to_string(k);
    std::vector<std::string> inputs{last};
    if (!steps[k].constant.empty()) {
      auto& tensor = model.initializer("c" + name, {1}, TensorProto::FLOAT);
      tensor.add_float_data(steps[k].constant[0]);
      inputs.push_back("c" + name);
    }
    model.node(steps[k].op, inputs, {name});
    last = name;
  }
  ModelBuilder::set_int(model.node("Cast", {last}, {"end"}), "to", TensorProto::INT64);
  model.node("Slice", {"x", "zero", "end"}, {"y"});
  return model;
}

std::vector<std::int64_t> lengths(Engine& engine, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> results;
  for (const std::int64_t size : sizes) results.push_back(engine.run({ones({size})})[0].sizes()[0]);
  return results;
}

/// Fractions that floats hold stay symbolic: one compile serves every size.
TEST(RealSizes, FractionsOfSizesStaySymbolic) {
  const auto expect = [](const std::vector<Step>& steps, const std::vector<std::int64_t>& wanted) {
    Engine engine = sliced("n", steps).load();
    EXPECT_EQ(lengths(engine, {8, 11, 23}), wanted) << steps[0].op;
    EXPECT_EQ(engine.stats().traces, 1u) << steps[0].op;
    EXPECT_EQ(engine.stats().compiles, 1u) << steps[0].op;
  };
  expect({{"Mul", {0.5f}}, {"Floor"}}, {4, 5, 11});
  expect({{"Mul", {0.5f}}, {"Ceil"}}, {4, 6, 12});
  expect({{"Mul", {0.5f}}}, {4, 5, 11});
  expect({{"Div", {4}}, {"Floor"}, {"Mul", {3}}}, {6, 6, 15});
  expect({{"Add", {0.5f}}, {"Mul", {0.75f}}, {"Floor"}}, {6, 8, 17});
  expect({{"Sub", {3}}, {"Div", {2}}, {"Ceil"}}, {3, 4, 10});
}

float applied(const Step& step, float number) {
  if (step.op == "Ceil") return std::ceil(number);
  if (step.op == "Floor") return std::floor(number);
  const float constant = step.constant[0];
  if (step.op == "Add") return number + constant;
  if (step.op == "Sub") return number - constant;
  return step.op == "Mul" ? number * constant : number / constant;
}

/// One division by a number that is no power of two, as by the stride of a window: floats round it, and what is cut, rounded up
/// or down is what the fraction says all the same.
TEST(RealSizes, DivisionsOfSizesStaySymbolic) {
  const std::vector<std::vector<Step>> chains{
      {{"Div", {3}}},
      {{"Div", {7}}, {"Ceil"}, {"Mul", {7}}},
      {{"Div", {7}}, {"Floor"}},
      {{"Sub", {5}}, {"Div", {5}}, {"Add", {1}}, {"Ceil"}},
      {{"Mul", {0.75f}}, {"Div", {160}}, {"Add", {0.5f}}, {"Mul", {0.25f}}, {"Ceil"}},
      {{"Add", {2}}, {"Div", {-3}}, {"Add", {5}}, {"Floor"}, {"Mul", {-1}}},
      {{"Div", {3}}, {"Ceil"}, {"Div", {5}}, {"Floor"}},
      {{"Div", {1000}}, {"Div", {2}}, {"Add", {3}}, {"Ceil"}},
  };
  for (const auto& steps : chains) {
    Engine engine = sliced("n", steps).load();
    for (const std::int64_t size :
         {1'000, 1,   2,   3,   4,   5,     6,     7,     8,     20,     21,      22,
          640,   641, 852, 853, 854, 1'001, 1'999, 2'000, 2'001, 99'999, 100'000, 3'145'725}) {
      auto number = static_cast<float>(size);
      for (const Step& step : steps) number = applied(step, number);
      const auto end = static_cast<std::int64_t>(number);
      const std::int64_t wanted = std::clamp<std::int64_t>(end < 0 ? size + end : end, 0, size);
      EXPECT_EQ(lengths(engine, {size})[0], wanted) << size << " " << steps.back().op;
    }
    EXPECT_LE(engine.stats().compiles, 6u);
  }
  Engine fifth = sliced("n", {{"Div", {5}}, {"Ceil"}}).load();
  lengths(fifth, {11, 10, 12, 15, 99'999});
  EXPECT_EQ(fifth.stats().compiles, 1u);
}

/// What would multiply the error of a rounded quotient, or be whole without it, is what floats make of it.
TEST(RealSizes, RoundedQuotientsThatAreMadeLargerAreRounded) {
  for (const std::vector<Step>& steps : {std::vector<Step>{{"Div", {3}}, {"Mul", {3}}, {"Floor"}},
                                         {{"Div", {49}}, {"Div", {0.25f}}, {"Floor"}},
                                         {{"Div", {3}}, {"Div", {7}}, {"Floor"}}}) {
    Engine engine = sliced("n", steps).load();
    for (const std::int64_t size : {41, 49, 98, 147}) {
      auto number = static_cast<float>(size);
      for (const Step& step : steps) number = applied(step, number);
      EXPECT_EQ(lengths(engine, {size})[0],
                std::min<std::int64_t>(static_cast<std::int64_t>(number), size));
    }
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

/// Others are computed as f32 does, for the sizes of each call: one compile serves them too.
TEST(RealSizes, OtherNumbersAreThoseOfFloats) {
  Engine engine = sliced("n", {{"Mul", {0.7f}}, {"Floor"}}).load();
  EXPECT_EQ(lengths(engine, {10, 9, 30, 10}), (std::vector<std::int64_t>{7, 6, 21, 7}));
  EXPECT_EQ(engine.stats().compiles, 1u);
  Engine root = sliced("n", {{"Sqrt"}}).load();
  EXPECT_EQ(lengths(root, {16, 15, 17}), (std::vector<std::int64_t>{4, 3, 4}));
  Engine tenth = sliced("n", {{"Mul", {0.1f}}, {"Ceil"}}).load();
  EXPECT_EQ(lengths(tenth, {10, 11, 30}), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(tenth.stats().compiles, 1u);
  Engine third = sliced("n", {{"Div", {3}}, {"Round"}}).load();
  EXPECT_EQ(lengths(third, {16, 17}), (std::vector<std::int64_t>{5, 6}));
}

/// start, start + step, … below the length of x, as exporters make grids: one compile serves every size.
TEST(RealSizes, RangesOfRealsUpToASizeAreOpen) {
  const auto ranged = [](float start, float step, float scale) {
    ModelBuilder model;
    model.input("x", {"n"}).output("y").ints("index", {0});
    model.node("Shape", {"x"}, {"shape"});
    model.initializer("scalar", {0}, TensorProto::INT64);
    model.node("Reshape", {"shape", "scalar"}, {"length"});
    ModelBuilder::set_int(model.node("Cast", {"length"}, {"real"}), "to", TensorProto::FLOAT);
    model.initializer("scale", {}, TensorProto::FLOAT).add_float_data(scale);
    model.initializer("start", {}, TensorProto::FLOAT).add_float_data(start);
    model.initializer("step", {}, TensorProto::FLOAT).add_float_data(step);
    model.node("Mul", {"real", "scale"}, {"limit"});
    model.node("Range", {"start", "limit", "step"}, {"y"});
    return model;
  };
  const auto expect = [&](float start, float step, float scale) {
    Engine engine = ranged(start, step, scale).load();
    for (const std::int64_t size : {4, 7, 12}) {
      const double limit = static_cast<double>(size) * scale;
      std::vector<double> wanted;
      for (double at = start; step > 0 ? at < limit : at > limit; at += step) wanted.push_back(at);
      EXPECT_EQ(engine.run({ones({size})})[0].to_doubles(), wanted)
          << start << " by " << step << " to " << limit;
    }
    EXPECT_EQ(engine.stats().compiles, 1u) << start << " by " << step;
  };
  expect(0, 1, 1);
  expect(0.5f, 1, 1);
  expect(0, 0.25f, 0.5f);
  expect(1, 3, 1);
  expect(2, -0.5f, -1);
  // A step that is no fraction of few bits.
  Engine engine = ranged(0, 0.3f, 1).load();
  EXPECT_EQ(engine.run({ones({3})})[0].sizes()[0], 10);
  EXPECT_EQ(engine.run({ones({6})})[0].sizes()[0], 20);
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// As detectors resize: by the factor that makes the shorter side 8, or the longer one 12 if that is less.
TEST(RealSizes, BothSidesByTheFactorOfOne) {
  ModelBuilder model;
  model.input("x", {"1", "1", "h", "w"})
      .output("y")
      .ints("two", {2})
      .ints("four", {4})
      .ints("zero", {0});
  add_float(model, "short", 8);
  add_float(model, "long", 12);
  model.node("Shape", {"x"}, {"shape"});
  model.node("Slice", {"shape", "zero", "two"}, {"front"});
  model.node("Slice", {"shape", "two", "four"}, {"sides"});
  ModelBuilder::set_int(model.node("Cast", {"sides"}, {"reals"}), "to", TensorProto::FLOAT);
  std::vector<std::string> factors;
  for (const auto& [op, side] : {std::pair{"ReduceMin", "short"}, {"ReduceMax", "long"}}) {
    const std::string name = op;
    ModelBuilder::set_int(model.node(op, {"reals"}, {name}), "keepdims", 0);
    model.node("Reciprocal", {name}, {"by" + name});
    model.node("Mul", {"by" + name, side}, {"factor" + name});
    factors.push_back("factor" + name);
  }
  model.node("Min", factors, {"factor"});
  model.node("Mul", {"reals", "factor"}, {"scaled"});
  model.node("Floor", {"scaled"}, {"floor"});
  ModelBuilder::set_int(model.node("Cast", {"floor"}, {"whole"}), "to", TensorProto::INT64);
  ModelBuilder::set_int(model.node("Concat", {"front", "whole"}, {"sizes"}), "axis", 0);
  model.node("Resize", {"x", "", "", "sizes"}, {"y"});
  Engine engine = model.load();
  for (const auto& [h, w] : {std::pair{4, 5}, {5, 4}, {4, 4}, {2, 11}, {49, 7}, {3, 3}, {13, 11}}) {
    const auto real = [](int side) { return static_cast<float>(side); };
    const float factor =
        std::min(1.0f / real(std::min(h, w)) * 8.0f, 1.0f / real(std::max(h, w)) * 12.0f);
    const auto scaled = [&](int side) {
      return static_cast<std::int64_t>(std::floor(real(side) * factor));
    };
    EXPECT_THAT(engine.run({ones({1, 1, h, w})})[0].sizes(),
                ElementsAre(1, 1, scaled(h), scaled(w)))
        << h << " " << w;
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// As TensorFlow pads: what windows of 3 by strides of 2 reach beyond, but no less than nothing; in reals and in integers.
TEST(RealSizes, PadsThatAreNotNegative) {
  for (const bool reals : {true, false}) {
    ModelBuilder model;
    model.input("x", {"n"}).output("y").ints("zero", {0}).ints("two", {2}).ints("none", {0});
    const int type = reals ? TensorProto::FLOAT : TensorProto::INT64;
    model.node("Shape", {"x"}, {"shape"});
    ModelBuilder::set_int(model.node("Cast", {"shape"}, {"size"}), "to", type);
    ModelBuilder::set_int(model.node("Cast", {"two"}, {"stride"}), "to", type);
    ModelBuilder::set_int(model.node("Cast", {"none"}, {"least"}), "to", type);
    model.node("Squeeze", {"least"}, {"scalar"});
    model.node("Div", {"size", "stride"}, {"windows"});
    if (reals)
      model.node("Ceil", {"windows"}, {"count"});
    else
      model.node("Identity", {"windows"}, {"count"});
    model.node("Mul", {"count", "stride"}, {"reach"});
    model.node("Sub", {"reach", "size"}, {"more"});
    model.node("Clip", {"more", "scalar"}, {"clipped"});
    ModelBuilder::set_int(model.node("Cast", {"clipped"}, {"high"}), "to", TensorProto::INT64);
    ModelBuilder::set_int(model.node("Concat", {"zero", "high"}, {"pads"}), "axis", 0);
    model.node("Pad", {"x", "pads"}, {"y"});
    Engine engine = model.load();
    EXPECT_EQ(lengths(engine, {4, 5, 11}),
              (reals ? std::vector<std::int64_t>{4, 6, 12} : std::vector<std::int64_t>{4, 5, 11}));
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

/// Layers on layers whose windows are padded so: each size is that of the layer before, halved and rounded up.
TEST(RealSizes, PadsOfManyLayers) {
  ModelBuilder model;
  model.input("x", {"1", "1", "n"}).output("y").ints("zeros", {0, 0, 0, 0, 0});
  add_number(model, "axis", 2);
  for (const auto& [name, number] :
       {std::pair{"two", 2.0f}, {"one", 1.0f}, {"three", 3.0f}, {"nothing", 0.0f}})
    add_float(model, name, number);
  model.ints("vector", {1});
  std::string last = "x";
  for (int k = 0; k < 6; ++k) {
    const auto named = [k](const char* name) { return name + std::to_string(k); };
    model.node("Shape", {last}, {named("shape")});
    model.node("Gather", {named("shape"), "axis"}, {named("number")});
    ModelBuilder::set_int(model.node("Cast", {named("number")}, {named("size")}), "to",
                          TensorProto::FLOAT);
    model.node("Div", {named("size"), "two"}, {named("half")});
    model.node("Ceil", {named("half")}, {named("count")});
    model.node("Sub", {named("count"), "one"}, {named("steps")});
    model.node("Mul", {named("steps"), "two"}, {named("moved")});
    model.node("Add", {named("moved"), "three"}, {named("reach")});
    model.node("Sub", {named("reach"), named("size")}, {named("more")});
    model.node("Clip", {named("more"), "nothing"}, {named("clipped")});
    ModelBuilder::set_int(model.node("Cast", {named("clipped")}, {named("whole")}), "to",
                          TensorProto::INT64);
    model.node("Reshape", {named("whole"), "vector"}, {named("high")});
    ModelBuilder::set_int(model.node("Concat", {"zeros", named("high")}, {named("pads")}), "axis",
                          0);
    model.node("Pad", {last, named("pads")}, {named("padded")});
    last = k == 5 ? "y" : named("pooled");
    NodeProto& pool = model.node("MaxPool", {named("padded")}, {last});
    ModelBuilder::set_ints(pool, "kernel_shape", {3});
    ModelBuilder::set_ints(pool, "strides", {2});
  }
  Engine engine = model.load();
  for (const std::int64_t size : {100, 33, 64, 1})
    EXPECT_EQ(engine.run({ones({1, 1, size})})[0].sizes()[2], (size + 63) / 64);
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// A factor that is no fraction of few bits: sizes of pictures are those of doubles, and nothing is compiled for them.
TEST(RealSizes, ResizeByAnyScale) {
  ModelBuilder model;
  model.input("x", {"1", "1", "h", "w"}).output("y");
  auto& scales = model.initializer("scales", {4}, TensorProto::FLOAT);
  for (const float scale : {1.0f, 1.0f, 0.7f, 1.3f}) scales.add_float_data(scale);
  model.node("Resize", {"x", "", "scales"}, {"y"});
  Engine engine = model.load();
  for (const auto& [h, w] : {std::pair{10, 10}, {9, 20}, {30, 7}})
    EXPECT_THAT(engine.run({ones({1, 1, h, w})})[0].sizes(),
                ElementsAre(1, 1, static_cast<std::int64_t>(std::floor(h * double{0.7f})),
                            static_cast<std::int64_t>(std::floor(w * double{1.3f}))));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// None is between 0 and a size that is 0; what is found for other sizes does not hold for it.
TEST(RealSizes, RangesOfRealsMayBeEmpty) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  model.node("Shape", {"x"}, {"shape"});
  model.initializer("scalar", {0}, TensorProto::INT64);
  model.node("Reshape", {"shape", "scalar"}, {"length"});
  ModelBuilder::set_int(model.node("Cast", {"length"}, {"real"}), "to", TensorProto::FLOAT);
  model.initializer("zero", {}, TensorProto::FLOAT).add_float_data(0);
  model.initializer("one", {}, TensorProto::FLOAT).add_float_data(1);
  model.node("Range", {"zero", "real", "one"}, {"y"});
  Engine engine = model.load();
  EXPECT_THAT(engine.run({ones({2})})[0].to_doubles(), ElementsAre(0, 1));
  EXPECT_EQ(engine.run({ones({0})})[0].sizes()[0], 0);
  EXPECT_THAT(engine.run({ones({3})})[0].to_doubles(), ElementsAre(0, 1, 2));
}

/// Too much arithmetic for a size is a tensor's, not a hang: each step doubles what the next would compute.
TEST(RealSizes, ArithmeticWithoutBoundIsNone) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y").ints("zero", {0});
  model.node("Shape", {"x"}, {"shape"});
  ModelBuilder::set_int(model.node("Cast", {"shape"}, {"v"}), "to", TensorProto::FLOAT);
  model.node("Sqrt", {"v"}, {"v0"});
  for (int k = 0; k < 60; ++k)
    model.node("Add", {"v" + std::to_string(k), "v" + std::to_string(k)},
               {"v" + std::to_string(k + 1)});
  ModelBuilder::set_int(model.node("Cast", {"v60"}, {"end"}), "to", TensorProto::INT64);
  model.node("Slice", {"x", "zero", "end"}, {"y"});
  Engine engine = model.load();
  EXPECT_EQ(lengths(engine, {4}), (std::vector<std::int64_t>{4})) << "2^61 in all, cut by the run";
}

/// Nor is a size of a size of a size, each twice as long: from some length on the run tells them.
TEST(RealSizes, SizesOfSizesWithoutBoundAreCutByTheRun) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y").ints("zero", {0});
  add_float(model, "most", 0.9f);
  std::string last = "x";
  for (int k = 0; k < 30; ++k) {
    const std::string name = std::to_string(k);
    model.node("Shape", {last}, {"shape" + name});
    ModelBuilder::set_int(model.node("Cast", {"shape" + name}, {"v" + name}), "to",
                          TensorProto::FLOAT);
    model.node("Mul", {"v" + name, "most"}, {"m" + name});
    model.node("Sub", {"v" + name, "m" + name}, {"d" + name});
    model.node("Sub", {"v" + name, "d" + name}, {"r" + name});
    ModelBuilder::set_int(model.node("Cast", {"r" + name}, {"end" + name}), "to",
                          TensorProto::INT64);
    last = k == 29 ? "y" : "x" + name;
    model.node("Slice", {k == 0 ? "x" : "x" + std::to_string(k - 1), "zero", "end" + name}, {last});
  }
  Engine engine = model.load();
  for (const std::int64_t size : {1000, 300}) {
    auto wanted = size;
    for (int k = 0; k < 30; ++k) {
      const auto real = static_cast<float>(wanted);
      const float rest = real - real * 0.9f;
      wanted = static_cast<std::int64_t>(real - rest);
    }
    EXPECT_EQ(lengths(engine, {size})[0], wanted);
  }
}

TEST(RealSizes, FixedSizesAreKnownToo) {
  Engine engine = sliced("10", {{"Mul", {0.5f}}, {"Floor"}}).load();
  EXPECT_EQ(lengths(engine, {10}), (std::vector<std::int64_t>{5}));
}

/// Where no number is needed, no size is pinned.
TEST(RealSizes, TensorsOfThemStaySymbolic) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  model.node("Shape", {"x"}, {"shape"});
  ModelBuilder::set_int(model.node("Cast", {"shape"}, {"real"}), "to", TensorProto::FLOAT);
  model.node("Sqrt", {"real"}, {"root"});
  model.node("Div", {"x", "root"}, {"y"});
  Engine engine = model.load();
  EXPECT_THAT(engine.run({ones({4})})[0].to_doubles(), ElementsAre(0.5, 0.5, 0.5, 0.5));
  EXPECT_THAT(engine.run({ones({16})})[0].to_doubles(), Each(0.25));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// How exporters write an interpolation by a factor: sizes from Shape, times the factor, floored, joined.
ModelBuilder interpolated(float factor) {
  ModelBuilder model;
  model.input("x", {"1", "1", "h", "w"}).output("y");
  model.ints("two", {2}).ints("four", {4}).ints("axis", {0});
  model.node("Shape", {"x"}, {"shape"});
  model.node("Slice", {"shape", "axis", "two"}, {"front"});
  std::vector<std::string> parts{"front"};
  model.initializer("factor", {}, TensorProto::FLOAT).add_float_data(factor);
  for (const int k : {2, 3}) {
    const std::string name = std::to_string(k);
    model.initializer("at" + name, {}, TensorProto::INT64).add_int64_data(k);
    model.node("Gather", {"shape", "at" + name}, {"size" + name});
    ModelBuilder::set_int(model.node("Cast", {"size" + name}, {"real" + name}), "to",
                          TensorProto::FLOAT);
    model.node("Mul", {"real" + name, "factor"}, {"scaled" + name});
    model.node("Floor", {"scaled" + name}, {"floor" + name});
    ModelBuilder::set_int(model.node("Cast", {"floor" + name}, {"whole" + name}), "to",
                          TensorProto::INT64);
    model.node("Unsqueeze", {"whole" + name, "axis"}, {"part" + name});
    parts.push_back("part" + name);
  }
  ModelBuilder::set_int(model.node("Concat", parts, {"sizes"}), "axis", 0);
  model.node("Resize", {"x", "", "", "sizes"}, {"y"});
  return model;
}

TEST(RealSizes, AnInterpolationByAFactor) {
  Engine half = interpolated(0.5f).load();
  EXPECT_THAT(half.run({ones({1, 1, 9, 4})})[0].sizes(), ElementsAre(1, 1, 4, 2));
  EXPECT_THAT(half.run({ones({1, 1, 6, 7})})[0].sizes(), ElementsAre(1, 1, 3, 3));
  EXPECT_EQ(half.stats().compiles, 1u);
  Engine odd = interpolated(1.3f).load();
  EXPECT_THAT(odd.run({ones({1, 1, 10, 4})})[0].sizes(), ElementsAre(1, 1, 13, 5));
  EXPECT_THAT(odd.run({ones({1, 1, 9, 4})})[0].sizes(), ElementsAre(1, 1, 11, 5));
}

TEST(RealSizes, WhatIsNoNumberIsNoSize) {
  Engine engine = sliced("n", {{"Div", {0}}, {"Floor"}}).load();
  EXPECT_EQ(lengths(engine, {4}), (std::vector<std::int64_t>{0}));
}

}  // namespace
}  // namespace heddle::onnx_test
