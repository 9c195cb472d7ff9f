// Attributes and constants that are meant to harm: each ends in an error that names its node, and nothing is read or
// written where it may not be.

#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <new>
#include <stdexcept>

#include "engine/onnx/node_errors.h"
#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

/// The text of the error of type E that loading or running the model ends in.
template <typename E = ModelError>
std::string text_of_run(const ModelBuilder& model, const std::vector<Tensor>& inputs = {}) {
  try {
    model.load().run(inputs);
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

void set_string(NodeProto& node, const std::string& name, const std::string& value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s(value);
}

/// y = transpose(reshape(a, shape)) of known integers.
ModelBuilder reshaped(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& shape) {
  ModelBuilder model;
  model.output("y").ints("a", a).ints("shape", shape);
  ModelBuilder::set_int(model.node("Reshape", {"a", "shape"}, {"r"}), "allowzero", 1);
  model.node("Transpose", {"r"}, {"y"});
  return model;
}

TEST(Hostile, SizesBelowMinusOneOrTwiceOpen) {
  EXPECT_EQ(text_of_run(reshaped({1, 2, 3, 4, 5, 6}, {-3, -2})),
            "Reshape: shape at the_Reshape (ai.onnx Reshape): expected sizes of at least 0 and at "
            "most one -1, got [-3, -2]");
  EXPECT_EQ(text_of_run(reshaped({1, 2, 3, 4, 5, 6}, {-1, -1})),
            "Reshape: shape at the_Reshape (ai.onnx Reshape): expected sizes of at least 0 and at "
            "most one -1, got [-1, -1]");
}

TEST(Hostile, SizesWhoseProductWrapsToTheCount) {
  const std::int64_t large = std::int64_t{1} << 32;
  EXPECT_EQ(text_of_run<ShapeError>(reshaped({}, {large, large})),
            "size overflows 64 bits at the_Reshape (ai.onnx Reshape)");
}

TEST(Hostile, TrainingOfWhatHasNoChannels) {
  for (const auto& [dims, sizes, rank] :
       {std::tuple{std::vector<std::string>{"4"}, Sizes{4}, "1"}, {{}, {}, "0"}}) {
    ModelBuilder model;
    model.input("x", dims).output("y");
    auto& vector = model.initializer("v", {4}, TensorProto::FLOAT);
    for (int k = 0; k < 4; ++k) vector.add_float_data(1);
    ModelBuilder::set_int(
        model.node("BatchNormalization", {"x", "v", "v", "v", "v"}, {"y", "mean", "variance"}),
        "training_mode", 1);
    EXPECT_EQ(text_of_run(model, {ones(sizes)}),
              "BatchNormalization: X at the_BatchNormalization (ai.onnx BatchNormalization): "
              "expected two dimensions or more, got " +
                  std::string(rank));
  }
}

TEST(Hostile, NeighboursInChannelsThatAreNotThere) {
  ModelBuilder model;
  model.input("x", {"4"}).output("y");
  ModelBuilder::set_int(model.node("LRN", {"x"}, {"y"}), "size", 3);
  EXPECT_EQ(text_of_run(model, {ones({4})}),
            "LRN: X at the_LRN (ai.onnx LRN): expected two dimensions or more, got 1");
}

TEST(Hostile, AnOutputShapeOfTooFewSizes) {
  ModelBuilder model;
  model.input("x", {"1", "1", "8", "8"}).input("w", {"1", "1", "3", "3"}).output("y");
  ModelBuilder::set_ints(model.node("ConvTranspose", {"x", "w"}, {"y"}), "output_shape", {9});
  EXPECT_EQ(
      text_of_run(model, {ones({1, 1, 8, 8}), ones({1, 1, 3, 3})}),
      "ConvTranspose: output_shape at the_ConvTranspose (ai.onnx ConvTranspose): expected one "
      "size a spatial dimension, got 1");
}

TEST(Hostile, ConstantsOfNegativeOrAbsurdSizes) {
  const auto text = [](const std::vector<std::int64_t>& sizes) {
    ModelBuilder model;
    model.output("y").ints("sizes", sizes);
    AttributeProto& value = *model.node("ConstantOfShape", {"sizes"}, {"y"}).add_attribute();
    value.set_name("value");
    value.set_type(AttributeProto::TENSOR);
    value.mutable_t()->set_data_type(TensorProto::INT64);
    value.mutable_t()->add_dims(1);
    value.mutable_t()->add_int64_data(3);
    return text_of_run(model);
  };
  EXPECT_EQ(text({-1}),
            "ConstantOfShape: input at the_ConstantOfShape (ai.onnx ConstantOfShape): expected "
            "sizes of at least 0, got [-1]");
  EXPECT_EQ(text({std::int64_t{1} << 62, std::int64_t{1} << 62}),
            "ConstantOfShape: sizes of the result at the_ConstantOfShape (ai.onnx "
            "ConstantOfShape): expected fewer than 2^63 elements, got [4611686018427387904, "
            "4611686018427387904]");
}

TEST(Hostile, NumbersThatAreMissing) {
  ModelBuilder depth;
  depth.output("y").ints("indices", {0}).ints("depth", {}).ints("values", {0, 1});
  depth.node("OneHot", {"indices", "depth", "values"}, {"y"});
  EXPECT_EQ(text_of_run(depth),
            "OneHot: depth at the_OneHot (ai.onnx OneHot): expected one number, got 0 numbers");
  ModelBuilder k;
  k.input("x", {"4"}).output("y").ints("k", {});
  k.node("TopK", {"x", "k"}, {"y", "at"});
  EXPECT_EQ(text_of_run(k, {ones({4})}),
            "TopK: K at the_TopK (ai.onnx TopK): expected one number, got 0 numbers");
  ModelBuilder range;
  range.output("y").ints("start", {}).ints("limit", {4}).ints("delta", {1});
  range.node("Range", {"start", "limit", "delta"}, {"y"});
  EXPECT_EQ(text_of_run(range),
            "Range: start at the_Range (ai.onnx Range): expected one number, got 0 numbers");
}

TEST(Hostile, BlocksWhoseSquareWraps) {
  for (const std::string op : {"DepthToSpace", "SpaceToDepth"}) {
    ModelBuilder model;
    model.input("x", {"1", "4", "2", "2"}).output("y");
    ModelBuilder::set_int(model.node(op, {"x"}, {"y"}), "blocksize", std::int64_t{1} << 32);
    EXPECT_EQ(text_of_run(model, {ones({1, 4, 2, 2})}),
              op + ": blocksize at the_" + op + " (ai.onnx " + op +
                  "): expected 1 to 2^24, got 4294967296");
  }
}

TEST(Hostile, WindowsThatReachPastEveryNumber) {
  const auto text = [](const std::vector<std::int64_t>& kernel, const std::string& name,
                       const std::vector<std::int64_t>& values) {
    ModelBuilder model;
    model.input("x", {"1", "1", "8", "8"}).output("y");
    NodeProto& node = model.node("MaxPool", {"x"}, {"y"});
    ModelBuilder::set_ints(node, "kernel_shape", kernel);
    ModelBuilder::set_ints(node, name, values);
    set_string(node, "auto_pad", "SAME_UPPER");
    return text_of_run<ShapeError>(model, {ones({1, 1, 8, 8})});
  };
  const std::string overflow = "size overflows 64 bits at the_MaxPool (ai.onnx MaxPool)";
  EXPECT_EQ(text({2, 2}, "strides", {std::numeric_limits<std::int64_t>::max(), 1}), overflow);
  EXPECT_EQ(text({std::int64_t{1} << 62, 2}, "dilations", {4, 1}), overflow);
}

TEST(Hostile, ScalesThatAreNoNumbers) {
  for (const auto& [scale, shown] : {std::pair{std::numeric_limits<float>::quiet_NaN(), "nan"},
                                     {std::numeric_limits<float>::infinity(), "inf"},
                                     {-1.0f, "-1.000000"}}) {
    ModelBuilder model;
    model.input("x", {"1", "1", "8", "8"}).output("y");
    auto& scales = model.initializer("scales", {4}, TensorProto::FLOAT);
    for (const float value : {1.0f, 1.0f, scale, 1.0f}) scales.add_float_data(value);
    model.node("Resize", {"x", "", "scales"}, {"y"});
    EXPECT_EQ(text_of_run(model, {ones({1, 1, 8, 8})}),
              "Resize: scales at the_Resize (ai.onnx Resize): expected above 0 and at most 2^48, "
              "got " +
                  std::string(shown));
  }
}

TEST(Hostile, ASplitIntoNothing) {
  ModelBuilder model;
  model.input("x", {"4"}).output("x");
  model.node("Split", {"x"}, {});
  EXPECT_EQ(text_of_run(model, {ones({4})}),
            "Split: outputs at the_Split (ai.onnx Split): expected one or more, got none");
}

TEST(Hostile, ATensorWithoutElementsOfAbsurdSizes) {
  ModelBuilder model = relu_model();
  model.initializer("w", {0, std::int64_t{1} << 62, std::int64_t{1} << 62}, TensorProto::FLOAT);
  EXPECT_EQ(text_of_run(model, {ones({1})}),
            "tensor w: size at initialiser w: expected sizes of 0 to 2^48 elements in all, got "
            "4611686018427387904");
}

TEST(Hostile, AnInputOfAbsurdSizes) {
  ModelBuilder model;
  model.input("x", {"4611686018427387904", "4"}).output("y");
  model.node("Relu", {"x"}, {"y"});
  EXPECT_EQ(text_of_run(model),
            "model: sizes of x: expected fewer than 2^63 elements, got [4611686018427387904, 4]");
}

TEST(Hostile, AHiddenSizeThatTheWeightsDoNotHave) {
  ModelBuilder model;
  model.input("x", {"2", "1", "3"}).input("w", {"1", "4", "3"}).input("r", {"1", "4", "4"});
  model.output("y");
  ModelBuilder::set_int(model.node("RNN", {"x", "w", "r"}, {"y"}), "hidden_size",
                        std::int64_t{1} << 62);
  EXPECT_EQ(text_of_run(model, {ones({2, 1, 3}), ones({1, 4, 3}), ones({1, 4, 4})}),
            "RNN: hidden_size at the_RNN (ai.onnx RNN): expected 4, the last size of R, got "
            "4611686018427387904");
}

/// Whatever a conversion throws becomes an error of the model that names the node.
TEST(Hostile, ExceptionsOfTheStandardLibraryNameTheNode) {
  const auto text = [](const std::function<void()>& fail) {
    try {
      onnx::convert_at("Op", "the_Op (ai.onnx Op)", [&]() -> onnx::Outputs {
        fail();
        return {};
      });
    } catch (const ModelError& error) {
      return std::string("ModelError: ") + error.what();
    } catch (const OutOfMemory& error) {
      return std::string("OutOfMemory: ") + error.what();
    } catch (const ShapeError& error) {
      return std::string("ShapeError: ") + error.what();
    } catch (const std::logic_error& error) {
      return std::string("logic_error: ") + error.what();
    }
    return std::string("no error");
  };
  EXPECT_EQ(text([] { throw std::out_of_range("past the end"); }),
            "ModelError: Op: conversion at the_Op (ai.onnx Op): got past the end");
  EXPECT_EQ(text([] { throw std::length_error("too long"); }),
            "ModelError: Op: conversion at the_Op (ai.onnx Op): got too long");
  EXPECT_EQ(text([] { throw std::runtime_error("other"); }),
            "ModelError: Op: conversion at the_Op (ai.onnx Op): got other");
  EXPECT_EQ(text([] { throw std::bad_alloc(); }),
            "OutOfMemory: Op: conversion at the_Op (ai.onnx Op): got std::bad_alloc");
  EXPECT_EQ(text([] { throw ShapeError({.what = "too large"}); }),
            "ShapeError: too large at the_Op (ai.onnx Op)");
  EXPECT_EQ(text([] { throw ShapeError({.what = "too large", .where = "inner"}); }),
            "ShapeError: too large at inner");
  EXPECT_EQ(text([] { throw std::logic_error("ours"); }), "logic_error: ours")
      << "a broken assumption of the engine is no fault of the model";
}

}  // namespace
}  // namespace heddle::onnx_test
