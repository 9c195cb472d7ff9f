// Random numbers: how they are spread, and that they differ from run to run.

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/onnx/onnx.pb.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;

void set_real(NodeProto& node, const std::string& name, float value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::FLOAT);
  attribute.set_f(value);
}

struct Spread {
  double mean = 0;
  double deviation = 0;
  double least = 0;
  double largest = 0;
};

Spread spread_of(const Tensor& tensor) {
  const std::vector<double> numbers = tensor.to_doubles();
  Spread spread;
  for (const double number : numbers) spread.mean += number;
  spread.mean /= static_cast<double>(numbers.size());
  for (const double number : numbers) spread.deviation += std::pow(number - spread.mean, 2);
  spread.deviation = std::sqrt(spread.deviation / static_cast<double>(numbers.size()));
  const auto [least, largest] = std::ranges::minmax(numbers);
  spread.least = least;
  spread.largest = largest;
  return spread;
}

/// y as large as x, by `op`.
ModelBuilder like(const std::string& op) {
  ModelBuilder model;
  model.input("x", {"n", "m"}).output("y");
  model.node(op, {"x"}, {"y"});
  return model;
}

TEST(Random, NormalNumbersAsLargeAsATensor) {
  ModelBuilder model = like("RandomNormalLike");
  set_real(*model.graph().mutable_node(0), "mean", 3);
  set_real(*model.graph().mutable_node(0), "scale", 2);
  Engine engine = model.load();
  const Tensor first = engine.run({ones({300, 200})})[0];
  EXPECT_THAT(first.sizes(), ElementsAre(300, 200));
  EXPECT_NEAR(spread_of(first).mean, 3, 0.05);
  EXPECT_NEAR(spread_of(first).deviation, 2, 0.05);
  EXPECT_NE(engine.run({ones({300, 200})})[0].to_doubles(), first.to_doubles());
  EXPECT_THAT(engine.run({ones({2, 3})})[0].sizes(), ElementsAre(2, 3));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Random, UniformNumbersOfAShape) {
  ModelBuilder model;
  model.output("y");
  NodeProto& node = model.node("RandomUniform", {}, {"y"});
  ModelBuilder::set_ints(node, "shape", {500, 100});
  set_real(node, "low", -1);
  set_real(node, "high", 3);
  set_real(node, "seed", 7);
  const Tensor first = model.load().run({})[0];
  EXPECT_THAT(first.sizes(), ElementsAre(500, 100));
  EXPECT_NEAR(spread_of(first).mean, 1, 0.05);
  EXPECT_GE(spread_of(first).least, -1);
  EXPECT_LT(spread_of(first).largest, 3);
  EXPECT_NE(model.load().run({})[0].to_doubles(), first.to_doubles()) << "the sequence goes on";
}

TEST(Random, TwoNodesHaveOtherNumbers) {
  ModelBuilder model = like("RandomUniformLike");
  model.output("z");
  model.node("RandomUniformLike", {"x"}, {"z"});
  const std::vector<Tensor> got = model.load().run({ones({1, 20})});
  EXPECT_NE(got[0].to_doubles(), got[1].to_doubles());
}

TEST(Random, ChancesOfOne) {
  Engine engine = like("Bernoulli").load();
  const Spread spread = spread_of(engine.run({Tensor::full(f32, {100, 500}, 0.25)})[0]);
  EXPECT_NEAR(spread.mean, 0.25, 0.02);
  EXPECT_EQ(spread.least, 0);
  EXPECT_EQ(spread.largest, 1);
}

TEST(Random, ClassesByTheirChances) {
  ModelBuilder model;
  model.input("x", {"n", "3"}).output("y", TensorProto::INT64);
  NodeProto& node = model.node("Multinomial", {"x"}, {"y"});
  ModelBuilder::set_int(node, "sample_size", 20000);
  ModelBuilder::set_int(node, "dtype", TensorProto::INT64);
  Engine engine = model.load();
  const float nothing = -INFINITY;
  const std::vector<float> chances{std::log(1.0f), nothing, std::log(3.0f), nothing, 5, nothing};
  const Tensor got = engine.run({Tensor::of(std::span<const float>(chances), {2, 3})})[0];
  EXPECT_THAT(got.sizes(), ElementsAre(2, 20000));
  const std::vector<double> classes = got.to_doubles();
  EXPECT_EQ(std::count(classes.begin(), classes.begin() + 20000, 1), 0);
  EXPECT_NEAR(std::count(classes.begin(), classes.begin() + 20000, 2), 15000, 400);
  EXPECT_EQ(std::count(classes.begin() + 20000, classes.end(), 1), 20000);
}

}  // namespace
}  // namespace heddle::onnx_test
