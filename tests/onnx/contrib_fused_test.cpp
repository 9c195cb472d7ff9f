// Ops of com.microsoft for which ONNX Runtime has no kernel on the CPU, against the standard ops that they are made of.

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

ModelBuilder contrib_model() {
  ModelBuilder model;
  auto& opset = *model.proto().add_opset_import();
  opset.set_domain(kMicrosoft);
  opset.set_version(1);
  model.output("y").output("z");
  return model;
}

/// Outputs of a model agree two by two.
void expect_same(const ModelBuilder& model, const std::vector<Tensor>& inputs) {
  Engine engine = model.load();
  const std::vector<Tensor> got = engine.run(inputs);
  for (std::size_t pair = 0; pair + 1 < got.size(); pair += 2) {
    const Tensor& a = got[pair];
    const Tensor& b = got[pair + 1];
    ASSERT_EQ(std::vector(a.sizes().begin(), a.sizes().end()),
              std::vector(b.sizes().begin(), b.sizes().end()));
    const std::vector<double> y = a.to_doubles();
    const std::vector<double> z = b.to_doubles();
    for (std::size_t k = 0; k < y.size(); ++k) ASSERT_NEAR(y[k], z[k], 1e-5) << pair << ", " << k;
  }
}

/// A node, and standard ones that z comes from, of inputs x, b and c.
void expect_made_of(const std::function<void(ModelBuilder&)>& build,
                    const std::vector<Tensor>& inputs) {
  ModelBuilder model = contrib_model();
  const std::string names[] = {"x", "b", "c"};
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    std::vector<std::string> dims;
    for (const std::int64_t size : inputs[k].sizes()) dims.push_back(std::to_string(size));
    model.input(names[k], dims);
  }
  build(model);
  expect_same(model, inputs);
}

TEST(ContribFused, BiasesAndWhatIsAdded) {
  const std::vector<Tensor> inputs{waves({2, 3, 4}, 0.7), waves({4}, 1.1), waves({2, 3, 4}, 1.9)};
  for (const std::string op : {"BiasAdd", "BiasDropout"})
    expect_made_of(
        [&](ModelBuilder& model) {
          model.node(op, {"x", "b", "c"}, {"y"}, kMicrosoft);
          model.node("Sum", {"x", "b", "c"}, {"z"});
        },
        inputs);
}

TEST(ContribFused, SoftmaxOfABias) {
  expect_made_of(
      [](ModelBuilder& model) {
        ModelBuilder::set_int(model.node("BiasSoftmax", {"x", "b"}, {"y"}, kMicrosoft), "axis", 3);
        model.node("Add", {"x", "b"}, {"sum"});
        ModelBuilder::set_int(model.node("Softmax", {"sum"}, {"z"}), "axis", 3);
      },
      {waves({2, 3, 4, 5}, 0.7), waves({2, 1, 1, 5}, 1.1)});
  expect_made_of(
      [](ModelBuilder& model) {
        ModelBuilder::set_int(model.node("BiasSoftmax", {"x", "b"}, {"y"}, kMicrosoft), "axis", 1);
        model.ints("rows", {2, -1}).ints("all", {2, 3, 4});
        model.node("Add", {"x", "b"}, {"sum"});
        model.node("Reshape", {"sum", "rows"}, {"flat"});
        ModelBuilder::set_int(model.node("Softmax", {"flat"}, {"soft"}), "axis", -1);
        model.node("Reshape", {"soft", "all"}, {"z"});
      },
      {waves({2, 3, 4}, 0.7), waves({1, 3, 4}, 1.1)});
}

TEST(ContribFused, HalvesOfWhichOneIsAGelu) {
  expect_made_of(
      [](ModelBuilder& model) {
        model.node("BiasSplitGelu", {"x", "b"}, {"y"}, kMicrosoft);
        model.node("Add", {"x", "b"}, {"sum"});
        ModelBuilder::set_int(model.node("Split", {"sum"}, {"left", "right"}), "axis", -1);
        model.node("Gelu", {"right"}, {"gelu"}, kMicrosoft);
        model.node("Mul", {"left", "gelu"}, {"z"});
      },
      {waves({2, 3, 8}, 0.7), waves({8}, 1.1)});
}

TEST(ContribFused, AProductUnderAGelu) {
  expect_made_of(
      [](ModelBuilder& model) {
        model.node("GemmFastGelu", {"x", "b", "c"}, {"y"}, kMicrosoft);
        model.node("MatMul", {"x", "b"}, {"product"});
        model.node("FastGelu", {"product", "c"}, {"z"}, kMicrosoft);
      },
      {waves({2, 3, 8}, 0.7), waves({8, 5}, 1.1), waves({5}, 0.3)});
}

/// (x - mean) / deviation of groups of 2 of 6 channels, scaled and shifted, under a SiLU.
void add_groups(ModelBuilder& model, const std::string& x, const std::string& result) {
  model.ints("groups", {2, 3, -1}).ints("all", {2, 6, 2, 2}).ints("wide", {1, 6, 1, 1});
  model.node("Reshape", {x, "groups"}, {"split"});
  ModelBuilder::set_ints(model.node("ReduceMean", {"split"}, {"mean"}), "axes", {2});
  model.node("Sub", {"split", "mean"}, {"centred"});
  model.node("Mul", {"centred", "centred"}, {"squares"});
  ModelBuilder::set_ints(model.node("ReduceMean", {"squares"}, {"variance"}), "axes", {2});
  model.initializer("epsilon", {}, TensorProto::FLOAT).add_float_data(1e-5f);
  model.node("Add", {"variance", "epsilon"}, {"above"});
  model.node("Sqrt", {"above"}, {"deviation"});
  model.node("Div", {"centred", "deviation"}, {"normal"});
  model.node("Reshape", {"normal", "all"}, {"again"});
  model.node("Reshape", {"b", "wide"}, {"scale"});
  model.node("Reshape", {"c", "wide"}, {"shift"});
  model.node("Mul", {"again", "scale"}, {"scaled"});
  model.node("Add", {"scaled", "shift"}, {"line"});
  model.node("Sigmoid", {"line"}, {"gate"});
  model.node("Mul", {"line", "gate"}, {result});
}

void set_groups(NodeProto& node, bool last) {
  ModelBuilder::set_int(node, "groups", 3);
  ModelBuilder::set_int(node, "activation", 1);
  ModelBuilder::set_int(node, "channels_last", last ? 1 : 0);
}

TEST(ContribFused, GroupsOfChannels) {
  const std::vector<Tensor> inputs{waves({2, 6, 2, 2}, 0.7), waves({6}, 1.1), waves({6}, 0.3)};
  expect_made_of(
      [](ModelBuilder& model) {
        set_groups(model.node("GroupNorm", {"x", "b", "c"}, {"y"}, kMicrosoft), false);
        add_groups(model, "x", "z");
      },
      inputs);
  expect_made_of(
      [](ModelBuilder& model) {
        ModelBuilder::set_ints(model.node("Transpose", {"x"}, {"last"}), "perm", {0, 2, 3, 1});
        set_groups(model.node("GroupNorm", {"last", "b", "c"}, {"normal_last"}, kMicrosoft), true);
        ModelBuilder::set_ints(model.node("Transpose", {"normal_last"}, {"y"}), "perm",
                               {0, 3, 1, 2});
        add_groups(model, "x", "z");
      },
      inputs);
}

TEST(ContribFused, GroupsOfASum) {
  expect_made_of(
      [](ModelBuilder& model) {
        model.output("sum").output("total");
        NodeProto& node =
            model.node("SkipGroupNorm", {"x", "b", "c", "x", "b"}, {"y", "sum"}, kMicrosoft);
        set_groups(node, false);
        model.ints("along", {6, 1, 1});
        model.node("Reshape", {"b", "along"}, {"bias"});
        model.node("Sum", {"x", "x", "bias"}, {"total"});
        add_groups(model, "total", "z");
      },
      {waves({2, 6, 2, 2}, 0.7), waves({6}, 1.1), waves({6}, 0.3)});
}

TEST(ContribFused, ProductsOfComplexNumbers) {
  ModelBuilder model = contrib_model();
  model.input("x", {"1", "2"}).input("b", {"1", "2"});
  model.node("ComplexMul", {"x", "b"}, {"y"}, kMicrosoft);
  model.node("ComplexMulConj", {"x", "b"}, {"z"}, kMicrosoft);
  const auto got =
      model.load().run({Tensor::of<float>({1, 2}, {1, 2}), Tensor::of<float>({3, -5}, {1, 2})});
  EXPECT_EQ(got[0].to_doubles(), (std::vector<double>{13, 1})) << "(1 + 2i) (3 - 5i)";
  EXPECT_EQ(got[1].to_doubles(), (std::vector<double>{-7, 11})) << "(1 + 2i) (3 + 5i)";
}

TEST(ContribFused, WhetherAllNumbersAreFinite) {
  for (const auto& [number, y, z] : {std::tuple(1.0f, 1, 1), {INFINITY, 0, 1}, {NAN, 0, 0}}) {
    ModelBuilder model;
    auto& opset = *model.proto().add_opset_import();
    opset.set_domain(kMicrosoft);
    opset.set_version(1);
    model.output("y", TensorProto::BOOL).output("z", TensorProto::BOOL).input("x", {"n"});
    model.initializer("one", {1}, TensorProto::FLOAT).add_float_data(1);
    model.node("IsAllFinite", {"one", "x"}, {"y"}, kMicrosoft);
    ModelBuilder::set_int(model.node("IsAllFinite", {"one", "x"}, {"z"}, kMicrosoft), "isnan_only",
                          1);
    const auto got = model.load().run({Tensor::of<float>({1, number}, {2})});
    EXPECT_EQ(got[0].to_doubles()[0], y) << number;
    EXPECT_EQ(got[1].to_doubles()[0], z) << number;
  }
}

TEST(ContribFused, MeansOfBytes) {
  ModelBuilder model;
  auto& opset = *model.proto().add_opset_import();
  opset.set_domain(kMicrosoft);
  opset.set_version(1);
  model.output("y", TensorProto::UINT8).output("z", TensorProto::UINT8);
  model.input("x", {"2", "3"}, TensorProto::UINT8);
  for (const auto& [name, scale, zero] : {std::tuple("a", 0.5f, 7), {"r", 0.25f, 9}}) {
    model.initializer(std::string(name) + "_scale", {}, TensorProto::FLOAT).add_float_data(scale);
    model.initializer(std::string(name) + "_zero", {}, TensorProto::UINT8).add_int32_data(zero);
  }
  NodeProto& node = model.node("QLinearReduceMean", {"x", "a_scale", "a_zero", "r_scale", "r_zero"},
                               {"y"}, kMicrosoft);
  ModelBuilder::set_ints(node, "axes", {1});
  ModelBuilder::set_int(node, "keepdims", 0);
  model.node("DequantizeLinear", {"x", "a_scale", "a_zero"}, {"real"});
  NodeProto& mean = model.node("ReduceMean", {"real"}, {"mean"});
  ModelBuilder::set_ints(mean, "axes", {1});
  ModelBuilder::set_int(mean, "keepdims", 0);
  model.node("QuantizeLinear", {"mean", "r_scale", "r_zero"}, {"z"});
  const auto got = model.load().run({Tensor::of<std::uint8_t>({1, 20, 30, 200, 8, 9}, {2, 3})});
  EXPECT_EQ(got[0].to_doubles(), got[1].to_doubles());
}

TEST(ContribFused, RowsOfAnEmbedding) {
  ModelBuilder model = contrib_model();
  model.input("x", {"3", "2"}).ints("at", {2, 0});
  model.node("TorchEmbedding", {"x", "at"}, {"y"}, kMicrosoft);
  model.node("Gather", {"x", "at"}, {"z"});
  expect_same(model, {waves({3, 2}, 0.7)});
}

}  // namespace
}  // namespace heddle::onnx_test
