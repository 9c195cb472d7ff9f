// Models of a few nodes: sizes, parameters, shape arithmetic, branches and functions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(Model, InitialisersAreUpdatedByName) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  model.initializer("block/w:0", {1}, TensorProto::FLOAT).add_float_data(2);
  model.ints("shape", {-1, 1});
  model.node("Mul", {"x", "block/w:0"}, {"m"});
  model.node("Reshape", {"m", "shape"}, {"y"});
  Engine engine = model.load();
  EXPECT_THAT(engine.run({counted({3})})[0].to_doubles(), ElementsAre(0, 2, 4));
  engine.update_parameters({{"block/w:0", Tensor::full(f32, {1}, 5)}});
  EXPECT_THAT(engine.run({counted({3})})[0].to_doubles(), ElementsAre(0, 5, 10));
  EXPECT_EQ(engine.stats().traces, 1u);
  EXPECT_THROW(engine.update_parameters({{"shape", Tensor::of<std::int64_t>({1, -1}, {2})}}),
               ArgumentError);
}

// They are in the code of kernels, as scalars are, and not among what can be updated.
TEST(Model, QuantisedNumbersAreConstants) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  model.initializer("scale", {}, TensorProto::FLOAT).add_float_data(0.5F);
  for (const char* name : {"number", "vector"}) {
    const std::int64_t count = std::string(name) == "number" ? 1 : 2;
    auto& tensor = model.initializer(name, {count}, TensorProto::UINT8);
    for (std::int64_t k = 0; k < count; ++k) tensor.add_int32_data(6);
  }
  model.node("DequantizeLinear", {"number", "scale"}, {"a"});
  model.node("DequantizeLinear", {"vector", "scale"}, {"b"});
  model.node("Mul", {"x", "a"}, {"m"});
  model.node("Add", {"m", "b"}, {"y"});
  Engine engine = model.load();
  const std::vector inputs{counted({2})};
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(3, 6));
  const std::string text = engine.graph_text(inputs, false);
  EXPECT_NE(text.find("param u8[2] \"vector\""), std::string::npos) << text;
  EXPECT_EQ(text.find("\"number\""), std::string::npos) << text;
  EXPECT_THROW(engine.update_parameters({{"number", Tensor::full(u8, {1}, 5)}}), ArgumentError);
}

// Inputs and parameters keep their names; values go by their node, or by its output where it has no name.
TEST(Model, GraphsSpeakTheNamesOfTheModel) {
  ModelBuilder model;
  model.input("input:ids", {"n"}).output("y");
  model.initializer("block/w", {1}, TensorProto::FLOAT).add_float_data(2);
  model.node("Mul", {"input:ids", "block/w"}, {"m"});
  model.graph().mutable_node(0)->set_name("/block/Mul");
  model.node("Sigmoid", {"m"}, {"y"});
  model.graph().mutable_node(1)->clear_name();
  Engine engine = model.load();
  EXPECT_EQ(engine.graph_text(std::vector{counted({3})}, false),
            "graph @main(%input_ids: f32[s0] \"input:ids\", %block_w: param f32[1] \"block/w\") {\n"
            "  %block.Mul = mul(%input_ids, %block_w)\n"
            "  %y = sigmoid(%block.Mul)\n"
            "  return %y \"y\"\n"
            "}\n");
}

/// A constant that an exporter wrote as a vector of one float is a number: kernels have it in their code. An initialiser
/// may be updated and is a parameter.
TEST(Model, ConstantOfOneElementIsANumber) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y").output("alone");
  model.node("Constant", {}, {"three"});
  auto& value = *model.graph().mutable_node(0)->add_attribute();
  value.set_name("value");
  value.set_type(onnx_format::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(TensorProto::FLOAT);
  value.mutable_t()->add_dims(1);
  value.mutable_t()->add_float_data(3);
  model.node("Mul", {"three", "x"}, {"y"});
  model.node("Identity", {"three"}, {"alone"});
  Engine engine = model.load();
  const std::vector<Tensor> results = engine.run({counted({3})});
  EXPECT_THAT(results[0].to_doubles(), ElementsAre(0, 3, 6));
  EXPECT_THAT(results[1].to_doubles(), ElementsAre(3));
  EXPECT_THAT(results[1].sizes(), ElementsAre(1));
  EXPECT_TRUE(engine.parameters().empty());
  const std::string plan = engine.plan_json(std::vector{counted({3})});
  EXPECT_THAT(plan, HasSubstr("const 3: f32"));
}

/// Symmetric weights come with a vector of zeros, which nothing is subtracted for; other zero points stay parameters.
TEST(Model, ZeroPointsOfZeroAreLeftOut) {
  for (const int point : {0, 3}) {
    ModelBuilder model;
    model.input("x", {"2"}).output("y");
    auto& weights = model.initializer("w", {2}, TensorProto::INT8);
    for (const int value : {5, -7}) weights.add_int32_data(value);
    auto& scale = model.initializer("s", {2}, TensorProto::FLOAT);
    for (const float value : {0.5f, 2.0f}) scale.add_float_data(value);
    auto& zero = model.initializer("z", {2}, TensorProto::INT8);
    for (const int value : {0, point}) zero.add_int32_data(value);
    model.node("DequantizeLinear", {"w", "s", "z"}, {"real"});
    ModelBuilder::set_int(*model.graph().mutable_node(0), "axis", 0);
    model.node("Mul", {"x", "real"}, {"y"});
    Engine engine = model.load();
    const std::vector<Tensor> x{Tensor::full(f32, {2}, 1)};
    EXPECT_THAT(engine.run(x)[0].to_doubles(), ElementsAre(2.5, 2.0 * (-7 - point)));
    const std::string text = engine.graph_text(x, false);
    EXPECT_EQ(text.find("sub(") == std::string::npos, point == 0) << text;
  }
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
  model.input("x", {"n", "3"}).output("y", TensorProto::INT64);
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

/// Adds a branch of one op on `inputs` to an If.
void add_branch(NodeProto& node, const std::string& name, const std::string& op,
                const std::vector<std::string>& inputs) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::GRAPH);
  GraphProto& graph = *attribute.mutable_g();
  ModelBuilder::fill(*graph.add_node(), op, inputs, {"inner"});
  graph.add_output()->set_name("inner");
}

TEST(Model, BranchWithAKnownCondition) {
  for (const int taken : {0, 1}) {
    ModelBuilder model;
    model.input("x", {"n"}).output("y");
    model.initializer("flag", {}, TensorProto::BOOL).add_int32_data(taken);
    NodeProto& node = model.node("If", {"flag"}, {"y"});
    add_branch(node, "then_branch", "Neg", {"x"});
    add_branch(node, "else_branch", "Abs", {"x"});
    Engine engine = model.load();
    EXPECT_THAT(engine.run({counted({2})})[0].to_doubles(), ElementsAre(0, taken != 0 ? -1 : 1));
  }
}

/// The rank of x and nothing else decides: Not, And and Or of what is known while tracing is known too.
TEST(Model, BranchOnLogicOfKnownSizes) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  model.node("Shape", {"x"}, {"shape"});
  model.node("Size", {"shape"}, {"rank"});
  model.initializer("two", {}, TensorProto::INT64).add_int64_data(2);
  model.node("Equal", {"rank", "two"}, {"is_matrix"});
  model.node("Not", {"is_matrix"}, {"is_vector"});
  model.node("And", {"is_vector", "is_matrix"}, {"both"});
  model.node("Or", {"both", "is_vector"}, {"flag"});
  NodeProto& node = model.node("If", {"flag"}, {"y"});
  add_branch(node, "then_branch", "Neg", {"x"});
  add_branch(node, "else_branch", "Gemm", {"x", "x"});
  EXPECT_THAT(model.load().run({counted({2})})[0].to_doubles(), ElementsAre(0, -1));
}

ModelBuilder model_with_a_branch_that_does_not_fit() {
  ModelBuilder model;
  model.input("x", {"3"}).input("mode", {}, TensorProto::INT64).output("y");
  model.initializer("w", {2}, TensorProto::FLOAT).add_float_data(2);
  model.proto().mutable_graph()->mutable_initializer(0)->add_float_data(3);
  model.initializer("one", {}, TensorProto::INT64).add_int64_data(1);
  model.node("Equal", {"mode", "one"}, {"flag"});
  NodeProto& node = model.node("If", {"flag"}, {"y"});
  add_branch(node, "then_branch", "Neg", {"x"});
  add_branch(node, "else_branch", "Add", {"x", "w"});
  return model;
}

TEST(Model, BranchThatDoesNotFitNeedsTheValueThatChooses) {
  const ModelBuilder model = model_with_a_branch_that_does_not_fit();
  const Tensor mode = Tensor::scalar_int(i64, 1);
  Engine engine = model.load();
  try {
    engine.run({counted({3}), mode});
    FAIL() << "no error";
  } catch (const onnx::NeedsValueError& error) {
    EXPECT_EQ(error.input(), "mode");
    EXPECT_THAT(error.what(), testing::HasSubstr("a branch of which does not fit the inputs"));
    EXPECT_THAT(error.what(), testing::HasSubstr("computed from the graph input mode"));
  }
  Engine fixed = model.load({{"mode", mode}});
  EXPECT_THAT(fixed.run({counted({3})})[0].to_doubles(), ElementsAre(0, -1, -2));
}

/// What exporters write for one pair of pads a dimension, last dimension first: pairs, reversed, turned, flat.
TEST(Model, PadsComputedFromPairs) {
  ModelBuilder model;
  model.input("x", {"2", "n"}).output("y");
  model.ints("last", {1, 2}).ints("others", {0, 0}).ints("pairs", {-1, 2}).ints("flat", {-1});
  model.ints("from", {-1}).ints("to", {-9223372036854775807}).ints("axis", {0});
  model.node("Concat", {"last", "others"}, {"all"});
  ModelBuilder::set_int(*model.graph().mutable_node(0), "axis", 0);
  model.node("Reshape", {"all", "pairs"}, {"rows"});
  model.node("Slice", {"rows", "from", "to", "axis", "from"}, {"reversed"});
  model.node("Transpose", {"reversed"}, {"turned"});
  model.node("Reshape", {"turned", "flat"}, {"pads"});
  ModelBuilder::set_int(model.node("Cast", {"pads"}, {"wide"}), "to", TensorProto::INT64);
  model.node("Pad", {"x", "wide"}, {"y"});
  Engine engine = model.load();
  const Tensor y = engine.run({counted({2, 2})})[0];
  EXPECT_THAT(y.sizes(), ElementsAre(2, 5));
  EXPECT_THAT(y.to_doubles(), ElementsAre(0, 0, 1, 0, 0, 0, 2, 3, 0, 0));
}

TEST(Model, KnownNumbersOfRankTwoAsAResult) {
  ModelBuilder model;
  model.input("x", {"n", "3"}).output("y", TensorProto::INT64);
  model.ints("square", {2, -1});
  model.node("Shape", {"x"}, {"shape"});
  model.node("Concat", {"shape", "shape"}, {"twice"});
  ModelBuilder::set_int(*model.graph().mutable_node(1), "axis", 0);
  model.node("Reshape", {"twice", "square"}, {"rows"});
  model.node("Transpose", {"rows"}, {"y"});
  const Tensor y = model.load().run({counted({5, 3})})[0];
  EXPECT_THAT(y.sizes(), ElementsAre(2, 2));
  EXPECT_THAT(y.to_doubles(), ElementsAre(5, 5, 3, 3));
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
