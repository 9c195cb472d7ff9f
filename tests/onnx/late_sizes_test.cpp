// Shapes and repeats that a model computes from several inputs: the run tells those of their elements that nothing else does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using ::testing::ElementsAre;

/// y = op(x, [2, a + b]) for x f32[2, 1]; without x where `op` takes none.
ModelBuilder late_model(const std::string& op, bool takes_x = true, const char* columns = "m") {
  ModelBuilder model;
  if (takes_x) model.input("x", {"2", columns});
  model.input("a", {"1"}, TensorProto::INT64).input("b", {"1"}, TensorProto::INT32).output("y");
  model.ints("two", {2});
  ModelBuilder::set_int(model.node("Cast", {"b"}, {"wide"}), "to", TensorProto::INT64);
  model.node("Add", {"a", "wide"}, {"sum"});
  ModelBuilder::set_int(model.node("Concat", {"two", "sum"}, {"narrow"}), "axis", 0);
  ModelBuilder::set_int(model.node("Cast", {"narrow"}, {"sizes"}), "to", TensorProto::INT64);
  model.node(op,
             takes_x ? std::vector<std::string>{"x", "sizes"} : std::vector<std::string>{"sizes"},
             {"y"});
  return model;
}

std::vector<Tensor> numbers(std::int64_t a, std::int64_t b) {
  return {Tensor::full(i64, {1}, static_cast<double>(a)),
          Tensor::full(i32, {1}, static_cast<double>(b))};
}

std::vector<Tensor> run(Engine& engine, Tensor x, std::int64_t a, std::int64_t b) {
  std::vector<Tensor> inputs = numbers(a, b);
  inputs.insert(inputs.begin(), std::move(x));
  return engine.run(inputs);
}

Tensor counted(Sizes sizes) {
  Tensor x = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < x.count(); ++k) x.data_as<float>()[k] = static_cast<float>(k);
  return x;
}

TEST(LateSizes, OfRepeats) {
  Engine engine = late_model("Tile").load();
  const Tensor twice = run(engine, counted({2, 1}), 1, 1)[0];
  EXPECT_THAT(twice.sizes(), ElementsAre(4, 2));
  EXPECT_THAT(twice.to_doubles(), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_THAT(run(engine, counted({2, 3}), 0, 1)[0].to_doubles(),
              ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(run(engine, counted({2, 1}), 2, -2)[0].sizes(), ElementsAre(4, 0));
  EXPECT_THROW(run(engine, counted({2, 1}), 2, -3), ShapeError);
  EXPECT_THAT(run(engine, counted({2, 1}), 1, 0)[0].sizes(), ElementsAre(4, 1));
}

/// As models of speech count frames whose number they predict: y = 0., 1., … as many as x has elements that are not 0, plus where
/// they are.
TEST(LateSizes, OfRangesOfReals) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y").ints("one", {1});
  for (const auto& [name, number] : {std::pair{"start", 0.0f}, {"step", 1.0f}})
    model.initializer(name, {}, TensorProto::FLOAT).add_float_data(number);
  model.node("NonZero", {"x"}, {"places"});
  model.node("Shape", {"places"}, {"shape"});
  model.node("Gather", {"shape", "one"}, {"count"});
  model.node("Squeeze", {"count"}, {"number"});
  ModelBuilder::set_int(model.node("Cast", {"number"}, {"limit"}), "to", TensorProto::FLOAT);
  model.node("Range", {"start", "limit", "step"}, {"range"});
  ModelBuilder::set_int(model.node("Cast", {"places"}, {"reals"}), "to", TensorProto::FLOAT);
  model.node("Add", {"range", "reals"}, {"y"});
  Engine engine = model.load();
  Tensor x = counted({5});
  EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(1, 3, 5, 7));
  x.data_as<float>()[2] = 0;
  EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(1, 4, 6));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(LateSizes, OfReshapes) {
  Engine engine = late_model("Reshape").load();
  EXPECT_THAT(run(engine, counted({2, 3}), 2, 1)[0].sizes(), ElementsAre(2, 3));
  EXPECT_THROW(run(engine, counted({2, 3}), 2, 2), ShapeError);
}

TEST(LateSizes, OfExpansions) {
  Engine engine = late_model("Expand", true, "1").load();
  EXPECT_THAT(run(engine, counted({2, 1}), 2, 1)[0].to_doubles(), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(run(engine, counted({2, 1}), 2, -2)[0].sizes(), ElementsAre(2, 0));
}

TEST(LateSizes, OfConstants) {
  Engine engine = late_model("ConstantOfShape", false).load();
  const std::vector<Tensor> results = engine.run(numbers(1, 2));
  EXPECT_THAT(results[0].sizes(), ElementsAre(2, 3));
  EXPECT_THAT(engine.run(numbers(1, -1))[0].sizes(), ElementsAre(2, 0));
}

/// What is known of the sizes decides: two is no size that only the run tells.
TEST(LateSizes, KnownElementsStayKnown) {
  ModelBuilder model = late_model("ConstantOfShape", false);
  model.node("Shape", {"y"}, {"shape"});
  model.ints("first", {0});
  model.output("rows", TensorProto::INT64);
  model.node("Gather", {"shape", "first"}, {"rows"});
  Engine engine = model.load();
  const std::vector<Tensor> inputs = numbers(3, 4);
  EXPECT_THAT(engine.run(inputs)[1].to_doubles(), ElementsAre(2));
  EXPECT_NE(engine.graph_text(inputs, false).find("sizes = [2, u0]"), std::string::npos)
      << engine.graph_text(inputs, false);
}

}  // namespace
}  // namespace heddle::onnx_test
