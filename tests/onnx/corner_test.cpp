// Corners of ONNX's ops: integers where most models have real numbers, negative padding, ranges without extent, versions
// that differ.

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "heddle/ops.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Pointwise;

void set_text(NodeProto& node, const std::string& name, const std::string& value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s(value);
}

void add_floats(ModelBuilder& model, const std::string& name, const std::vector<float>& values) {
  auto& tensor =
      model.initializer(name, {static_cast<std::int64_t>(values.size())}, TensorProto::FLOAT);
  for (const float value : values) tensor.add_float_data(value);
}

template <typename T>
Tensor matrix(const std::vector<T>& values, std::int64_t rows) {
  return Tensor::of(std::span<const T>(values),
                    {rows, static_cast<std::int64_t>(values.size()) / rows});
}

/// The text of the ModelError that running the model ends in.
std::string model_error(const ModelBuilder& model, const std::vector<Tensor>& inputs) {
  try {
    model.load().run(inputs);
  } catch (const ModelError& error) {
    return error.what();
  }
  return "no ModelError";
}

TEST(Corner, ReductionsOfIntegersAreThoseOfRealsCut) {
  const auto reduced = [](const std::string& op, bool wide) {
    ModelBuilder model;
    const int dtype = wide ? TensorProto::INT64 : TensorProto::INT32;
    model.input("x", {"n", "m"}, dtype).output("y", dtype);
    NodeProto& node = model.node(op, {"x"}, {"y"});
    ModelBuilder::set_int(node, "keepdims", 0);
    AttributeProto& axes = *node.add_attribute();
    axes.set_name("axes");
    axes.set_type(AttributeProto::INTS);
    axes.add_ints(1);
    const Tensor x = wide ? matrix<std::int64_t>({-7, -8, 2, 3, 4, 12}, 2)
                          : matrix<std::int32_t>({-7, -8, 2, 3, 4, 12}, 2);
    const Tensor result = model.load().run({x})[0];
    EXPECT_EQ(result.dtype(), wide ? i64 : i32) << op;
    return result.to_doubles();
  };
  for (const bool wide : {false, true}) {
    EXPECT_THAT(reduced("ReduceMean", wide), ElementsAre(-4, 6)) << "-13/3 and 19/3";
    EXPECT_THAT(reduced("ReduceL2", wide), ElementsAre(10, 13)) << "of 117 and 169";
    EXPECT_EQ(reduced("ReduceLogSum", wide)[1], 2) << "of 19";
    EXPECT_THAT(reduced("ReduceLogSumExp", wide), ElementsAre(2, 12));
  }
}

TEST(Corner, StatisticsOfLayerNormalizationAreOfTheirOwnDtype) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(17);
  model.input("x", {"n", "3"}, TensorProto::FLOAT16).input("w", {"3"}, TensorProto::FLOAT16);
  model.output("y", TensorProto::FLOAT16).output("mean", TensorProto::FLOAT);
  model.output("deviation", TensorProto::FLOAT);
  model.node("LayerNormalization", {"x", "w"}, {"y", "mean", "deviation"});
  const Tensor x = heddle::cast(matrix<float>({1, 2, 5}, 1), f16);
  const auto results = model.load().run({x, Tensor::full(f16, {3}, 1)});
  EXPECT_EQ(results[0].dtype(), f16);
  EXPECT_EQ(results[1].dtype(), f32);
  EXPECT_NEAR(results[1].to_doubles()[0], 8.0 / 3, 1e-6);
  EXPECT_NEAR(results[2].to_doubles()[0], 1 / std::sqrt(26.0 / 9 + 1e-5), 1e-6);
}

TEST(Corner, NegativePadsTakeAwayBeforeTheRestIsRepeated) {
  const auto padded = [](const std::string& mode, const std::vector<std::int64_t>& pads) {
    ModelBuilder model;
    model.input("x", {"n", "m"}).output("y").ints("pads", pads);
    set_text(model.node("Pad", {"x", "pads"}, {"y"}), "mode", mode);
    const Tensor result = model.load().run({matrix<float>({0, 1, 2, 3, 4, 5}, 2)})[0];
    EXPECT_THAT(result.sizes(), ElementsAre(1, 5));
    return result.to_doubles();
  };
  // The second row of [0 1 2], [3 4 5], with two elements behind it.
  EXPECT_THAT(padded("edge", {-1, 0, 0, 2}), ElementsAre(3, 4, 5, 5, 5));
  EXPECT_THAT(padded("reflect", {-1, 0, 0, 2}), ElementsAre(3, 4, 5, 4, 3));
  EXPECT_THAT(padded("wrap", {-1, 0, 0, 2}), ElementsAre(3, 4, 5, 3, 4));
  EXPECT_THAT(padded("constant", {-1, 0, 0, 2}), ElementsAre(3, 4, 5, 0, 0));
  // The first row without its first element, three behind it.
  EXPECT_THAT(padded("edge", {0, -1, -1, 3}), ElementsAre(1, 2, 2, 2, 2));
}

std::vector<double> resized(const std::vector<float>& scales, int opset, const std::string& mode,
                            const Tensor& x) {
  ModelBuilder model;
  const int dtype = x.dtype() == u8 ? TensorProto::UINT8 : TensorProto::FLOAT;
  model.input("x", {"2", "4"}, dtype).output("y", dtype);
  model.proto().mutable_opset_import(0)->set_version(opset);
  add_floats(model, "scales", scales);
  const bool old = opset < 11;
  set_text(model.node("Resize",
                      old ? std::vector<std::string>{"x", "scales"}
                          : std::vector<std::string>{"x", "", "scales"},
                      {"y"}),
           "mode", mode);
  const Tensor result = model.load().run({x})[0];
  EXPECT_EQ(result.dtype(), x.dtype());
  return result.to_doubles();
}

/// Version 10 looks after a position where it shrinks a dimension, and before it where it grows one.
TEST(Corner, ShrinkingInVersionTenTakesTheElementAfter) {
  const Tensor x = matrix<float>({1, 2, 3, 4, 5, 6, 7, 8}, 2);
  EXPECT_THAT(resized({0.6f, 0.6f}, 10, "nearest", x), ElementsAre(1, 3));
  EXPECT_THAT(resized({1.5f, 0.6f}, 10, "nearest", x), ElementsAre(1, 3, 1, 3, 5, 7));
  EXPECT_THAT(resized({1.0f, 1.5f}, 10, "nearest", x),
              ElementsAre(1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8));
}

TEST(Corner, BytesAreInterpolatedAsRealsAndCut) {
  const Tensor x = matrix<std::uint8_t>({0, 255, 10, 20, 0, 255, 10, 20}, 2);
  EXPECT_THAT(resized({1, 2}, 13, "linear", x),
              ElementsAre(0, 63, 191, 193, 71, 12, 17, 20, 0, 63, 191, 193, 71, 12, 17, 20));
  // Cubic curves swing past their points: 290.9 and -35.9 do not fit a byte.
  const Tensor steep = matrix<std::uint8_t>({0, 255, 255, 0, 255, 0, 0, 255}, 2);
  const std::vector<double> cubic = resized({1, 2}, 13, "cubic", steep);
  EXPECT_EQ(cubic[3], 255);
  EXPECT_EQ(cubic[11], 0);
}

TEST(Corner, QuantisingNothingButZerosHasAScale) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y", TensorProto::UINT8);
  model.output("scale").output("zero", TensorProto::UINT8);
  model.node("DynamicQuantizeLinear", {"x"}, {"y", "scale", "zero"});
  Engine engine = model.load();
  const auto zeros = engine.run({Tensor::full(f32, {3}, 0)});
  EXPECT_THAT(zeros[0].to_doubles(), ElementsAre(0, 0, 0));
  EXPECT_THAT(zeros[1].to_doubles(), ElementsAre(1));
  EXPECT_THAT(zeros[2].to_doubles(), ElementsAre(0));
  EXPECT_THAT(engine.run({ones({3})})[1].to_doubles(),
              ElementsAre(static_cast<double>(1.0f / 255)));
}

TEST(Corner, AVectorOfZerosHasNoDirection) {
  for (const int p : {1, 2}) {
    ModelBuilder model;
    model.input("x", {"n", "m"}).output("y");
    ModelBuilder::set_int(model.node("LpNormalization", {"x"}, {"y"}), "p", p);
    const Tensor result = model.load().run({matrix<float>({0, 0, 3, 4}, 2)})[0];
    const double norm = p == 1 ? 7 : 5;
    EXPECT_THAT(result.to_doubles(),
                Pointwise(testing::DoubleNear(1e-6), {0.0, 0.0, 3 / norm, 4 / norm}));
  }
}

TEST(Corner, WhatIsAddedNoTimesIsNotRead) {
  ModelBuilder model;
  model.input("a", {"n", "m"}).input("c", {"n", "n"}).output("y");
  NodeProto& node = model.node("Gemm", {"a", "a", "c"}, {"y"});
  ModelBuilder::set_int(node, "transB", 1);
  AttributeProto& beta = *node.add_attribute();
  beta.set_name("beta");
  beta.set_type(AttributeProto::FLOAT);
  beta.set_f(0);
  const Tensor nothing = Tensor::full(f32, {1, 1}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(model.load().run({matrix<float>({1, 2}, 1), nothing})[0].to_doubles(),
              ElementsAre(5));
}

TEST(Corner, WordsThatAnAttributeDoesNotTake) {
  ModelBuilder pool;
  pool.input("x", {"1", "1", "8", "8"}).output("y");
  NodeProto& node = pool.node("MaxPool", {"x"}, {"y"});
  AttributeProto& kernel = *node.add_attribute();
  kernel.set_name("kernel_shape");
  kernel.set_type(AttributeProto::INTS);
  kernel.add_ints(2);
  kernel.add_ints(2);
  set_text(node, "auto_pad", "SAME");
  EXPECT_EQ(model_error(pool, {ones({1, 1, 8, 8})}),
            "MaxPool: auto_pad at the_MaxPool (ai.onnx MaxPool): expected NOTSET, SAME_UPPER, "
            "SAME_LOWER or VALID, got SAME");
  ModelBuilder resize;
  resize.proto().mutable_opset_import(0)->set_version(18);
  resize.input("x", {"8"}).output("y").ints("sizes", {4});
  set_text(resize.node("Resize", {"x", "", "", "sizes"}, {"y"}), "keep_aspect_ratio_policy",
           "keep");
  EXPECT_EQ(model_error(resize, {ones({8})}),
            "Resize: keep_aspect_ratio_policy at the_Resize (ai.onnx Resize): expected stretch, "
            "not_larger or not_smaller, got keep");
}

TEST(Corner, SequencesToReverseAreAsLongAsTheyCanBe) {
  ModelBuilder model;
  model.input("x", {"t", "n"}).input("lengths", {"n"}, TensorProto::INT64).output("y");
  model.node("ReverseSequence", {"x", "lengths"}, {"y"});
  const Tensor x = matrix<float>({1, 2, 3, 4, 5, 6}, 3);
  const auto reversed = [&](std::int64_t a, std::int64_t b) {
    return model.load().run({x, Tensor::of<std::int64_t>({a, b}, {2})})[0].to_doubles();
  };
  EXPECT_THAT(reversed(3, 0), ElementsAre(5, 2, 3, 4, 1, 6));
  EXPECT_THROW(reversed(3, -1), IndexError);
  EXPECT_THROW(reversed(3, -3), IndexError);
  EXPECT_THROW(reversed(4, 1), IndexError);
}

TEST(Corner, NothingHasNoLargestElement) {
  ModelBuilder model;
  model.input("x", {"n", "m"}).output("y");
  model.node("Hardmax", {"x"}, {"y"});
  EXPECT_THAT(model.load().run({matrix<float>({1, 3, 2, 4, 0, 4}, 2)})[0].to_doubles(),
              ElementsAre(0, 1, 0, 1, 0, 0));
  const Tensor nothing = model.load().run({Tensor::zeros(f32, {3, 0})})[0];
  EXPECT_THAT(nothing.sizes(), ElementsAre(3, 0));
}

TEST(Corner, AKernelShapeThatTheWeightsDoNotHave) {
  ModelBuilder model;
  model.input("x", {"1", "1", "8", "8"}).input("w", {"1", "1", "3", "3"}).output("y");
  AttributeProto& kernel = *model.node("Conv", {"x", "w"}, {"y"}).add_attribute();
  kernel.set_name("kernel_shape");
  kernel.set_type(AttributeProto::INTS);
  kernel.add_ints(3);
  kernel.add_ints(2);
  EXPECT_EQ(model_error(model, {ones({1, 1, 8, 8}), ones({1, 1, 3, 3})}),
            "Conv: kernel_shape at the_Conv (ai.onnx Conv): expected the sizes of W, got [3, 2]");
}

TEST(Corner, StatisticsOfEachElementAreUnsupported) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(7);
  model.input("x", {"n", "3"}).input("v", {"3"}).output("y");
  ModelBuilder::set_int(model.node("BatchNormalization", {"x", "v", "v", "v", "v"}, {"y"}),
                        "spatial", 0);
  EXPECT_THROW(model.load().run({ones({2, 3}), ones({3})}), UnsupportedError);
}

/// A good model whose branches give different ranks is unsupported, unless what chooses is known.
TEST(Corner, BranchesOfDifferentRanks) {
  ModelBuilder model;
  model.input("x", {"3"}).input("flag", {}, TensorProto::BOOL).output("y");
  NodeProto& node = model.node("If", {"flag"}, {"y"});
  for (const std::string branch : {"then_branch", "else_branch"}) {
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(branch);
    attribute.set_type(AttributeProto::GRAPH);
    GraphProto& graph = *attribute.mutable_g();
    NodeProto& inner = *graph.add_node();
    ModelBuilder::fill(inner, branch == "then_branch" ? "ReduceSum" : "Neg", {"x"}, {branch});
    if (branch == "then_branch") ModelBuilder::set_int(inner, "keepdims", 0);
    graph.add_output()->set_name(branch);
  }
  const Tensor yes = Tensor::scalar_int(boolean, 1);
  try {
    model.load().run({ones({3}), yes});
    ADD_FAILURE() << "no error";
  } catch (const onnx::NeedsValueError& error) {
    EXPECT_EQ(error.input(), "flag");
    EXPECT_THAT(error.what(), HasSubstr("a branch of which does not fit the inputs"));
  }
  EXPECT_THAT(model.load({{"flag", yes}}).run({ones({3})})[0].to_doubles(), ElementsAre(3));
}

// A dimension of 1 repeats beside a longer one of the same label.
TEST(Corner, EinsumRepeatsDimensionsOfOne) {
  const auto run = [](const std::string& equation, const std::vector<Tensor>& inputs) {
    ModelBuilder model;
    std::vector<std::string> names;
    for (const Tensor& input : inputs) {
      names.push_back("x" + std::to_string(names.size()));
      std::vector<std::string> dims;
      for (const std::int64_t size : input.sizes()) dims.push_back(std::to_string(size));
      model.input(names.back(), dims);
    }
    model.output("y");
    AttributeProto& attribute = *model.node("Einsum", names, {"y"}).add_attribute();
    attribute.set_name("equation");
    attribute.set_type(AttributeProto::STRING);
    attribute.set_s(equation);
    return model.load().run(inputs)[0];
  };
  const Tensor a = Tensor::of<float>({1, 2, 3, 4}, {2, 2});
  const Tensor column = Tensor::of<float>({10, 100, 1000}, {3, 1});
  EXPECT_EQ(run("ij,kj->ik", {a, column}).to_doubles(),
            (std::vector<double>{30, 300, 3000, 70, 700, 7000}));
  EXPECT_EQ(run("ij,kj->kij", {a, column}).to_doubles(),
            (std::vector<double>{10, 20, 30, 40, 100, 200, 300, 400, 1000, 2000, 3000, 4000}));
  EXPECT_EQ(run("ij,ij->ij", {Tensor::of<float>({2, 3}, {1, 2}), a}).to_doubles(),
            (std::vector<double>{2, 6, 6, 12}));
  EXPECT_EQ(
      run("ij,ij,ij->j", {Tensor::of<float>({2}, {1, 1}), a, Tensor::of<float>({5, 6}, {1, 2})})
          .to_doubles(),
      (std::vector<double>{40, 72}));
}

/// y = x, after each of m iterations twice as long or, as `ranks` says, with a dimension more.
ModelBuilder growing_loop(bool known, bool ranks = false) {
  ModelBuilder model;
  model.input("x", {"2"}).output("y");
  if (known)
    model.initializer("m", {}, TensorProto::INT64).add_int64_data(3);
  else
    model.input("m", {}, TensorProto::INT64);
  model.initializer("go", {}, TensorProto::BOOL).add_int32_data(1);
  AttributeProto& attribute = *model.node("Loop", {"m", "go", "x"}, {"y"}).add_attribute();
  attribute.set_name("body");
  attribute.set_type(AttributeProto::GRAPH);
  GraphProto& body = *attribute.mutable_g();
  for (const char* name : {"k", "go_in", "now"}) body.add_input()->set_name(name);
  for (const char* name : {"go_out", "next"}) body.add_output()->set_name(name);
  ModelBuilder::fill(*body.add_node(), "Identity", {"go_in"}, {"go_out"});
  NodeProto& grows = *body.add_node();
  if (ranks) {
    model.ints("first", {0});
    ModelBuilder::fill(grows, "Unsqueeze", {"now", "first"}, {"next"});
  } else {
    ModelBuilder::fill(grows, "Concat", {"now", "now"}, {"next"});
    ModelBuilder::set_int(grows, "axis", 0);
  }
  return model;
}

TEST(Corner, ALoopThatGrowsWhatItCarriesIsUnrolledOrBoundToEachSize) {
  const Tensor x = Tensor::of<float>({1, 2}, {2});
  Engine engine = growing_loop(true).load();
  EXPECT_THAT(engine.run({x})[0].to_doubles(),
              ElementsAre(1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2));
  Engine asks = growing_loop(false).load();
  EXPECT_THAT(asks.run({x, Tensor::scalar_int(i64, 2)})[0].to_doubles(),
              ElementsAre(1, 2, 1, 2, 1, 2, 1, 2));
  EXPECT_THAT(asks.run({x, Tensor::scalar_int(i64, 0)})[0].to_doubles(), ElementsAre(1, 2));
}

TEST(Corner, ALoopThatGrowsRanksIsUnrolledOrUnsupported) {
  Engine engine = growing_loop(true, true).load();
  EXPECT_THAT(engine.run({ones({2})})[0].sizes(), ElementsAre(1, 1, 1, 2));
  Engine asks = growing_loop(false, true).load();
  try {
    asks.run({ones({2}), Tensor::scalar_int(i64, 3)});
    FAIL() << "no error";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Loop: carried values that change their type"));
    EXPECT_THAT(error.what(), HasSubstr("the_Loop (ai.onnx Loop)"));
  }
}

/// What neighbours of a result read of smoothed images lies side by side: they are computed at once.
TEST(Corner, PlacesThatNeighboursReadLieSideBySide) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(18);
  model.input("x", {"4", "60"}).output("y").ints("sizes", {4, 30});
  NodeProto& node = model.node("Resize", {"x", "", "", "sizes"}, {"y"});
  set_text(node, "mode", "linear");
  ModelBuilder::set_int(node, "antialias", 1);
  Engine engine = model.load();
  const std::vector<Tensor> inputs{ones({4, 60})};
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), testing::Each(DoubleNear(1, 1e-6)));
  EXPECT_THAT(engine.plan_json(inputs), HasSubstr("load b0[i1+30*i2]: i64"));
}

/// Images of 6 x 9, smoothed to 4 x 5.
Tensor smoothed(const Tensor& images, const std::vector<std::int64_t>& sizes) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(18);
  std::vector<std::string> from;
  for (const std::int64_t size : images.sizes()) from.push_back(std::to_string(size));
  model.input("x", from).output("y").ints("sizes", sizes);
  NodeProto& node = model.node("Resize", {"x", "", "", "sizes"}, {"y"});
  set_text(node, "mode", "cubic");
  ModelBuilder::set_int(node, "antialias", 1);
  return model.load().run(std::vector<Tensor>{images})[0];
}

/// Images whose pixels have their channels side by side are smoothed as those of each channel are.
TEST(Corner, SmoothedPixelsAreThoseOfEachChannel) {
  std::vector<float> planes(2 * 3 * 6 * 9), pixels(planes.size());
  for (std::size_t k = 0; k < planes.size(); ++k) {
    planes[k] = static_cast<float>(k * k % 101);
    const std::size_t image = k / 162, channel = k / 54 % 3, place = k % 54;
    pixels[(image * 54 + place) * 3 + channel] = planes[k];
  }
  const auto of = [](const std::vector<float>& values, const Sizes& sizes) {
    return Tensor::of(std::span<const float>(values), sizes);
  };
  const std::vector<double> want = smoothed(of(planes, {2, 3, 6, 9}), {2, 3, 4, 5}).to_doubles();
  const std::vector<double> got = smoothed(of(pixels, {2, 6, 9, 3}), {2, 4, 5, 3}).to_doubles();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) {
    const std::size_t image = k / 60, channel = k / 20 % 3, place = k % 20;
    EXPECT_NEAR(got[(image * 20 + place) * 3 + channel], want[k], 1e-3) << k;
  }
}

}  // namespace
}  // namespace heddle::onnx_test
