// Shapes and repeats that a model computes from several inputs: the run tells those of their elements that nothing else does.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"
#include "tests/onnx/nested_builder.h"

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

/// y = x resized to a + b, numbers that the run computes.
ModelBuilder resized_late() {
  ModelBuilder model;
  model.input("x", {"1", "1", "2", "2"}).output("y").ints("ones", {1, 1});
  for (const char* name : {"a", "b"}) model.input(name, {"2"}, TensorProto::INT64);
  model.node("Add", {"a", "b"}, {"there"});
  ModelBuilder::set_int(model.node("Concat", {"ones", "there"}, {"sizes"}), "axis", 0);
  model.node("Resize", {"x", "", "", "sizes"}, {"y"});
  return model;
}

TEST(LateSizes, OfPictures) {
  Engine engine = resized_late().load();
  const Tensor x = counted({1, 1, 2, 2});
  const auto run_at = [&](std::int64_t h, std::int64_t w) {
    return engine.run({x, Tensor::of<std::int64_t>({h + 1, w - 2}, {2}),
                       Tensor::of<std::int64_t>({-1, 2}, {2})})[0];
  };
  EXPECT_THAT(run_at(1, 4).to_doubles(), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(run_at(4, 2).to_doubles(), ElementsAre(0, 1, 0, 1, 2, 3, 2, 3));
  EXPECT_THAT(run_at(2, 0).sizes(), ElementsAre(1, 1, 2, 0));
  EXPECT_THROW(run_at(-1, 2), ShapeError);
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// As detectors put masks into pictures: each iteration resizes x to what a row says, and stacks the sum.
TEST(LateSizes, OfPicturesInALoop) {
  ModelBuilder model;
  model.input("x", {"1", "1", "2", "2"}).input("rows", {"n", "2"}, TensorProto::INT64);
  model.input("more", {"2"}, TensorProto::INT64)
      .output("y")
      .ints("ones", {1, 1})
      .ints("first", {0});
  add_truth(model, "go", true);
  model.node("Shape", {"rows"}, {"shape"});
  model.node("Gather", {"shape", "first"}, {"count"});
  model.node("Squeeze", {"count"}, {"trips"});
  add_graph(model.node("Loop", {"trips", "go"}, {"y"}), "body", {"k", "go_in"},
            {{"Gather", {"rows", "k"}, "row"},
             {"Add", {"row", "more"}, "size"},
             {"Concat", {"ones", "size"}, "sizes"},
             {"Resize", {"x", "", "", "sizes"}, "resized"},
             {"ReduceSum", {"resized"}, "sum"},
             {"Identity", {"go_in"}, "go_out"}},
            {"go_out", "sum"});
  Engine engine = model.load();
  const Tensor more = Tensor::of<std::int64_t>({1, 0}, {2});
  const auto sums = [&](std::initializer_list<std::int64_t> rows) {
    return engine
        .run({counted({1, 1, 2, 2}),
              Tensor::of<std::int64_t>(rows, {static_cast<std::int64_t>(rows.size()) / 2, 2}),
              more})[0]
        .to_doubles();
  };
  EXPECT_THAT(sums({0, 1, 1, 2, 3, 2, 1, 0}), ElementsAre(0, 6, 12, 0));
  EXPECT_THAT(sums({5, 6}), ElementsAre(54));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// How many elements of x are not 0, as detectors count boxes: comparisons, the least of it and another number, and a range.
TEST(LateSizes, AreComparedByTheRun) {
  ModelBuilder model;
  model.input("x", {"n"});
  for (const char* name : {"none", "fewer", "other", "least", "range"})
    model.output(name, name[0] == 'l' || name[0] == 'r' ? TensorProto::INT64 : TensorProto::BOOL);
  model.ints("one", {1}).ints("three", {3});
  add_number(model, "zero", 0);
  add_number(model, "step", 1);
  model.node("NonZero", {"x"}, {"places"});
  model.node("Shape", {"places"}, {"shape"});
  model.node("Gather", {"shape", "one"}, {"count"});
  model.node("Squeeze", {"count"}, {"number"});
  model.node("Equal", {"number", "zero"}, {"none"});
  model.node("Less", {"count", "three"}, {"fewer"});
  model.node("GreaterOrEqual", {"three", "count"}, {"other"});
  ModelBuilder::set_int(model.node("Concat", {"count", "three"}, {"both"}), "axis", 0);
  ModelBuilder::set_int(model.node("ReduceMin", {"both"}, {"least"}), "keepdims", 0);
  model.node("Range", {"zero", "least", "step"}, {"range"});
  Engine engine = model.load();
  for (const std::int64_t count : {0, 1, 2, 3, 4, 7}) {
    const auto outputs = engine.run({ones({count})});
    EXPECT_EQ(outputs[0].item(), count == 0);
    EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(count < 3));
    EXPECT_THAT(outputs[2].to_doubles(), ElementsAre(count <= 3));
    EXPECT_EQ(outputs[3].item(), static_cast<double>(std::min<std::int64_t>(count, 3)));
    EXPECT_THAT(outputs[4].sizes(), ElementsAre(std::min<std::int64_t>(count, 3)));
  }
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
