// Models of a few nodes: sizes, parameters, shape arithmetic, branches and functions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;

Tensor counted(Sizes sizes) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    tensor.data_as<float>()[k] = static_cast<float>(k);
  return tensor;
}

TEST(Model, SignatureKeepsNamesAndSharesSymbols) {
  ModelBuilder model;
  model.input("a", {"batch", "3"}).input("b", {"batch", ""}).output("y");
  model.node("Add", {"a", "b"}, {"y"});
  const Signature signature = model.load().signature();
  ASSERT_EQ(signature.inputs.size(), 2u);
  EXPECT_EQ(signature.inputs[0].name, "a");
  EXPECT_EQ(signature.inputs[0].to_string(), "f32[s0, 3]");
  EXPECT_EQ(signature.inputs[1].to_string(), "f32[s0, s1]");
  EXPECT_EQ(signature.outputs[0].name, "y");
}

TEST(Model, OneCompileServesEverySize) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  model.initializer("w", {1}, TensorProto::FLOAT).add_float_data(2);
  model.node("Mul", {"x", "w"}, {"y"});
  Engine engine = model.load();
  EXPECT_THAT(engine.run({counted({3})})[0].to_doubles(), ElementsAre(0, 2, 4));
  EXPECT_THAT(engine.run({counted({4})})[0].to_doubles(), ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
  EXPECT_GT(engine.stats().load_ms, 0);
}

TEST(Model, WrongDeclaredSizeIsAShapeError) {
  ModelBuilder model;
  model.input("x", {"n", "3"}).output("y");
  model.node("Relu", {"x"}, {"y"});
  Engine engine = model.load();
  EXPECT_THROW(engine.run({counted({2, 4})}), ShapeError);
}

TEST(Model, ShapeArithmeticStaysSymbolic) {
  ModelBuilder model;
  model.input("x", {"n", "m", "2"}).output("y");
  model.ints("zero", {0}).ints("rest", {-1});
  model.node("Shape", {"x"}, {"shape"});
  model.node("Gather", {"shape", "zero"}, {"first"});
  model.node("Concat", {"first", "rest"}, {"wanted"});
  ModelBuilder::set_int(*model.graph().mutable_node(2), "axis", 0);
  model.node("Reshape", {"x", "wanted"}, {"y"});
  Engine engine = model.load();
  EXPECT_THAT(engine.run({counted({2, 3, 2})})[0].sizes(), ElementsAre(2, 6));
  EXPECT_THAT(engine.run({counted({4, 5, 2})})[0].sizes(), ElementsAre(4, 10));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Model, ShapeAsAResult) {
  ModelBuilder model;
  model.input("x", {"n", "3"}).output("y");
  model.node("Shape", {"x"}, {"y"});
  Engine engine = model.load();
  EXPECT_THAT(engine.run({counted({5, 3})})[0].to_doubles(), ElementsAre(5, 3));
  EXPECT_THAT(engine.run({counted({7, 3})})[0].to_doubles(), ElementsAre(7, 3));
}

ModelBuilder reshape_model() {
  ModelBuilder model;
  model.input("x", {"n"}).input("wanted", {"2"}, TensorProto::INT64).output("y");
  model.node("Reshape", {"x", "wanted"}, {"y"});
  return model;
}

TEST(Model, InputWhoseValueIsNeeded) {
  Engine engine = reshape_model().load();
  const Tensor wanted = Tensor::of<std::int64_t>({2, 3}, {2});
  try {
    engine.run({counted({6}), wanted});
    FAIL() << "no error";
  } catch (const onnx::NeedsValueError& error) {
    EXPECT_EQ(error.input(), "wanted");
    EXPECT_THAT(error.what(), testing::HasSubstr("known when tracing"));
  }
  Engine fixed = reshape_model().load({{"wanted", wanted}});
  EXPECT_EQ(fixed.signature().inputs.size(), 1u);
  EXPECT_THAT(fixed.run({counted({6})})[0].sizes(), ElementsAre(2, 3));
}

TEST(Model, ConstantThatIsNoInput) {
  EXPECT_THROW(reshape_model().load({{"nothing", counted({2})}}), ArgumentError);
}

TEST(Model, BranchWithAKnownCondition) {
  for (const int taken : {0, 1}) {
    ModelBuilder model;
    model.input("x", {"n"}).output("y");
    model.initializer("flag", {}, TensorProto::BOOL).add_int32_data(taken);
    NodeProto& node = model.node("If", {"flag"}, {"y"});
    for (const char* name : {"then_branch", "else_branch"}) {
      AttributeProto& attribute = *node.add_attribute();
      attribute.set_name(name);
      attribute.set_type(AttributeProto::GRAPH);
      GraphProto& graph = *attribute.mutable_g();
      ModelBuilder::fill(*graph.add_node(), attribute.name() == "then_branch" ? "Neg" : "Abs",
                         {"x"}, {"inner"});
      graph.add_output()->set_name("inner");
    }
    Engine engine = model.load();
    EXPECT_THAT(engine.run({counted({2})})[0].to_doubles(), ElementsAre(0, taken != 0 ? -1 : 1));
  }
}

TEST(Model, FunctionTakesItsAttributeFromTheCall) {
  ModelBuilder model;
  model.input("x", {"2", "2"}).output("y");
  NodeProto& call = model.node("SumAlong", {"x"}, {"y"}, "local");
  ModelBuilder::set_int(call, "keep", 0);
  FunctionProto& function = *model.proto().add_functions();
  function.set_name("SumAlong");
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  function.add_attribute("keep");
  auto* import = function.add_opset_import();
  import->set_version(17);
  NodeProto& inner = *function.add_node();
  ModelBuilder::fill(inner, "ReduceSum", {"a"}, {"b"});
  AttributeProto& attribute = *inner.add_attribute();
  attribute.set_name("keepdims");
  attribute.set_ref_attr_name("keep");
  Engine engine = model.load();
  const Tensor result = engine.run({counted({2, 2})})[0];
  EXPECT_EQ(result.rank(), 0);
  EXPECT_THAT(result.to_doubles(), ElementsAre(6));
}

}  // namespace
}  // namespace heddle::onnx_test
