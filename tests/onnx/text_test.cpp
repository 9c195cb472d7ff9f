// Strings as their codes, and maps as the tensor of their values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "engine/onnx/onnx.pb.h"
#include "heddle/c_api.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using onnx::StringCodes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

TensorProto& add_strings(ModelBuilder& model, const std::string& name, const Strings& strings) {
  TensorProto& tensor =
      model.initializer(name, {static_cast<std::int64_t>(strings.size())}, TensorProto::STRING);
  for (const std::string& string : strings) tensor.add_string_data(string);
  return tensor;
}

/// Whether each of x is one of a, and the strings of x and a side by side.
ModelBuilder comparing_model() {
  ModelBuilder model;
  model.input("x", {"n"}, TensorProto::STRING);
  model.output("equal", TensorProto::BOOL).output("both", TensorProto::STRING);
  add_strings(model, "a", {"yes"});
  model.node("Equal", {"x", "a"}, {"equal"});
  ModelBuilder::set_int(model.node("Concat", {"x", "a"}, {"both"}), "axis", 0);
  return model;
}

std::string error_of(const ModelBuilder& model, const std::vector<Tensor>& inputs) {
  try {
    model.load().run(inputs);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Text, StringsThatTheModelDoesNotKnowPassThroughAndEqualThemselves) {
  Engine engine = comparing_model().load();
  const Signature signature = engine.signature();
  EXPECT_TRUE(signature.inputs[0].is_text);
  EXPECT_EQ(signature.inputs[0].dtype, i64);
  EXPECT_FALSE(signature.outputs[0].is_text);
  EXPECT_TRUE(signature.outputs[1].is_text);
  EXPECT_THAT(*signature.strings, ElementsAre("yes"));

  StringCodes codes(signature);
  const Tensor x = codes.encode(Strings{"no", "yes", "", "no"}, {4});
  const std::vector<Tensor> results = engine.run({x});
  EXPECT_THAT(results[0].to_doubles(), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(codes.decode(results[1]), ElementsAre("no", "yes", "", "no", "yes"));
  EXPECT_EQ(codes.code_of("yes"), 0);
  EXPECT_EQ(codes.code_of("no"), codes.code_of("no"));
  EXPECT_EQ(codes.count(), 3);
  EXPECT_EQ(StringCodes(signature).count(), 1) << "those that were met are this object's own";
}

TEST(Text, CodesAreChecked) {
  StringCodes codes((Signature()));
  EXPECT_THROW(codes.string_of(0), ArgumentError);
  EXPECT_THROW(codes.string_of(-1), ArgumentError);
  EXPECT_THROW(codes.encode(Strings{"a"}, {2}), ArgumentError);
  EXPECT_THROW(codes.decode(Tensor::zeros(f32, {1})), ArgumentError);
  EXPECT_EQ(codes.code_of("a"), 0);
  EXPECT_THAT(codes.decode(Tensor::zeros(i64, {1, 2})), ElementsAre("a", "a"));
}

TEST(Text, ArithmeticOnStringsIsRefused) {
  const Tensor x = Tensor::zeros(i64, {2});
  ModelBuilder model;
  model.input("x", {"n"}, TensorProto::STRING).output("y", TensorProto::STRING);
  model.node("Add", {"x", "x"}, {"y"});
  EXPECT_EQ(error_of(model, {x}),
            "model: value x at the_Add (ai.onnx Add): expected numbers, got strings");
  ModelBuilder cast;
  cast.input("x", {"n"}, TensorProto::STRING).output("y", TensorProto::INT64);
  ModelBuilder::set_int(cast.node("Cast", {"x"}, {"y"}), "to", TensorProto::INT64);
  EXPECT_THAT(error_of(cast, {x}), HasSubstr("Cast: strings as numbers"));
  ModelBuilder mixed;
  mixed.input("x", {"n"}, TensorProto::STRING).input("k", {"n"}, TensorProto::INT64);
  mixed.output("y", TensorProto::BOOL);
  mixed.node("Equal", {"x", "k"}, {"y"});
  EXPECT_EQ(error_of(mixed, {x, x}),
            "Equal: dtype of input 1 at the_Equal (ai.onnx Equal): expected strings as input 0, "
            "got numbers");
}

TEST(Text, StringsAreNoSizesAndNoConditions) {
  ModelBuilder model;
  model.input("x", {"2"}).output("y");
  add_strings(model, "sizes", {"a", "b"});
  model.node("Reshape", {"x", "sizes"}, {"y"});
  EXPECT_EQ(error_of(model, {ones({2})}),
            "Reshape: input 1 at the_Reshape (ai.onnx Reshape): expected numbers, got strings");
  ModelBuilder where;
  where.input("c", {"2"}, TensorProto::STRING).input("x", {"2"}).output("y");
  where.node("Where", {"c", "x", "x"}, {"y"});
  EXPECT_THAT(error_of(where, {Tensor::zeros(i64, {2}), ones({2})}),
              HasSubstr("Where: input 0 at the_Where (ai.onnx Where): expected numbers"));
}

/// Codes that lost what they are would pass for numbers.
TEST(Text, BranchesDoNotGiveStrings) {
  ModelBuilder model;
  model.input("c", {}, TensorProto::BOOL).output("y", TensorProto::STRING);
  NodeProto& node = model.node("If", {"c"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(AttributeProto::GRAPH);
    GraphProto& branch = *attribute.mutable_g();
    NodeProto& constant = *branch.add_node();
    ModelBuilder::fill(constant, "Constant", {}, {name});
    AttributeProto& value = *constant.add_attribute();
    value.set_name("value_string");
    value.set_type(AttributeProto::STRING);
    value.set_s(name);
    branch.add_output()->set_name(name);
  }
  EXPECT_THAT(error_of(model, {Tensor::zeros(boolean, {})}),
              HasSubstr("a result of a nested graph"));
}

/// A LabelEncoder from numbers to strings, whose other label is a tensor.
std::string error_of_default(int dtype, std::int64_t count) {
  ModelBuilder model;
  model.input("x", {"n"}, TensorProto::INT64).output("y", TensorProto::STRING);
  model.proto().add_opset_import()->set_domain("ai.onnx.ml");
  model.proto().mutable_opset_import(1)->set_version(4);
  NodeProto& node = model.node("LabelEncoder", {"x"}, {"y"}, "ai.onnx.ml");
  ModelBuilder::set_ints(node, "keys_int64s", {3});
  AttributeProto& values = *node.add_attribute();
  values.set_name("values_strings");
  values.set_type(AttributeProto::STRINGS);
  values.add_strings("three");
  AttributeProto& otherwise = *node.add_attribute();
  otherwise.set_name("default_tensor");
  otherwise.set_type(AttributeProto::TENSOR);
  otherwise.mutable_t()->set_data_type(dtype);
  otherwise.mutable_t()->add_dims(count);
  for (std::int64_t k = 0; k < count; ++k)
    if (dtype == TensorProto::STRING)
      otherwise.mutable_t()->add_string_data("other");
    else
      otherwise.mutable_t()->add_int64_data(0);
  return error_of(model, {Tensor::zeros(i64, {2})});
}

TEST(Text, TheLabelOfOtherKeysIsOneOfTheType) {
  EXPECT_EQ(error_of_default(TensorProto::STRING, 1), "no error");
  EXPECT_THAT(error_of_default(TensorProto::STRING, 2), HasSubstr("LabelEncoder: default_tensor"));
  EXPECT_THAT(error_of_default(TensorProto::INT64, 1),
              HasSubstr("expected one element of the type of the values, got 1 of i64"));
}

TEST(Text, AConstantForStringsIsTheirCodes) {
  const ModelBuilder model = comparing_model();
  Engine engine = model.load({{"x", Tensor::zeros(i64, {2})}});
  EXPECT_THAT(engine.run(std::vector<Tensor>{})[0].to_doubles(), ElementsAre(1, 1));
  EXPECT_THROW(model.load({{"x", ones({2})}}), ArgumentError);
}

TEST(Text, DeclaredTypesOfOutputsAreHeldToIt) {
  ModelBuilder model;
  model.input("x", {"n"}, TensorProto::STRING).output("y", TensorProto::INT64);
  model.node("Identity", {"x"}, {"y"});
  EXPECT_EQ(error_of(model, {Tensor::zeros(i64, {2})}),
            "model: declared dtype of output y: expected strings, got i64");
}

TEST(Text, TensorsOfAnotherNumberOfStringsAreMalformed) {
  ModelBuilder model = comparing_model();
  model.graph().mutable_initializer(0)->add_string_data("more");
  EXPECT_THROW(model.load(), ModelError);
}

/// A label and a map for each row of x.
ModelBuilder zipping_model(const Strings& keys) {
  ModelBuilder model;
  model.input("x", {"n", "2"});
  auto* output = model.graph().add_output();
  output->set_name("maps");
  auto* map = output->mutable_type()->mutable_sequence_type()->mutable_elem_type();
  map->mutable_map_type()->set_key_type(TensorProto::STRING);
  map->mutable_map_type()->mutable_value_type()->mutable_tensor_type()->set_elem_type(kFloat);
  NodeProto& node = model.node("ZipMap", {"x"}, {"maps"}, "ai.onnx.ml");
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("classlabels_strings");
  attribute.set_type(AttributeProto::STRINGS);
  for (const std::string& key : keys) attribute.add_strings(key);
  return model;
}

TEST(Text, MapsAreTheTensorOfTheirValues) {
  Engine engine = zipping_model({"cat", "dog"}).load();
  const ValueInfo maps = engine.signature().outputs[0];
  EXPECT_THAT(maps.columns, ElementsAre("cat", "dog"));
  EXPECT_EQ(maps.dtype, f32);
  ASSERT_EQ(maps.sizes.size(), 2u);
  EXPECT_EQ(maps.sizes[1].value(), 2);
  const std::vector<Tensor> results = engine.run({ones({3, 2})});
  EXPECT_THAT(results[0].sizes(), ElementsAre(3, 2));
  EXPECT_THAT(error_of(zipping_model({"cat"}), {ones({3, 2})}),
              HasSubstr("ZipMap: classlabels at the_ZipMap"));
  ModelBuilder read = zipping_model({"cat", "dog"});
  read.output("y");
  read.node("Identity", {"maps"}, {"y"});
  EXPECT_THAT(error_of(read, {ones({3, 2})}), HasSubstr("expected a tensor, got maps"));
}

/// Support vectors of two classes, in two features.
NodeProto& svm_node(ModelBuilder& model, std::vector<float> coefficients, std::vector<float> rho) {
  const auto set_floats = [](NodeProto& node, const char* name, const std::vector<float>& values) {
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(AttributeProto::FLOATS);
    for (const float value : values) attribute.add_floats(value);
  };
  model.input("x", {"n", "2"}).output("label", TensorProto::INT64).output("scores");
  NodeProto& node = model.node("SVMClassifier", {"x"}, {"label", "scores"}, "ai.onnx.ml");
  ModelBuilder::set_ints(node, "classlabels_ints", {4, 9});
  ModelBuilder::set_ints(node, "vectors_per_class", {1, 2});
  set_floats(node, "support_vectors", {1, 0, 0, 1, -1, 0});
  set_floats(node, "coefficients", coefficients);
  set_floats(node, "rho", rho);
  return node;
}

/// A vectoriser of single words and pairs of them.
std::string error_of_grams(const std::vector<std::int64_t>& begins,
                           const std::vector<std::int64_t>& columns, std::int64_t skips = 0) {
  ModelBuilder model;
  model.input("x", {"n", "m"}, TensorProto::INT64).output("y");
  NodeProto& node = model.node("TfIdfVectorizer", {"x"}, {"y"});
  ModelBuilder::set_ints(node, "ngram_counts", begins);
  ModelBuilder::set_ints(node, "ngram_indexes", columns);
  ModelBuilder::set_ints(node, "pool_int64s", {5, 7, 5, 7});
  ModelBuilder::set_int(node, "max_gram_length", 2);
  ModelBuilder::set_int(node, "max_skip_count", skips);
  return error_of(model, {Tensor::zeros(i64, {2, 3})});
}

TEST(Text, NGramsSayWhatIsWrong) {
  EXPECT_EQ(error_of_grams({0, 2}, {1, 0, 3}), "no error");
  EXPECT_THAT(error_of_grams({0, 3}, {1, 0, 3}), HasSubstr("TfIdfVectorizer: ngram_counts"));
  EXPECT_THAT(error_of_grams({0, -2}, {1, 0, 3}), HasSubstr("TfIdfVectorizer: ngram_counts"));
  EXPECT_THAT(error_of_grams({0, 2}, {1, 0}), HasSubstr("expected 3, one for each n-gram, got 2"));
  EXPECT_THAT(error_of_grams({0, 2}, {1, 0, -3}), HasSubstr("got -3"));
  EXPECT_THAT(error_of_grams({0, 2}, {1, 0, 1}), HasSubstr("n-grams that share a column"));
  EXPECT_THAT(error_of_grams({0, 2}, {1, 0, 3}, 1000), HasSubstr("more than 64 skips"));
}

TEST(SupportVectors, MalformedOnesSayWhatIsWrong) {
  const std::vector<Tensor> x{ones({1, 2})};
  ModelBuilder fine;
  svm_node(fine, {1, -1, -1}, {0.5f});
  EXPECT_EQ(error_of(fine, x), "no error");
  ModelBuilder few;
  svm_node(few, {1, -1, -1, 2}, {0.5f});
  EXPECT_EQ(error_of(few, x),
            "SVMClassifier: coefficients at the_SVMClassifier (ai.onnx.ml SVMClassifier): expected "
            "one less than there are classes for each support vector, got 4");
  ModelBuilder huge;
  ModelBuilder::set_ints(svm_node(huge, {1, -1}, {0.5f}), "vectors_per_class",
                         {std::numeric_limits<std::int64_t>::max(), 3});
  huge.graph().mutable_node(0)->mutable_attribute()->SwapElements(
      1, huge.graph().node(0).attribute_size() - 1);
  huge.graph().mutable_node(0)->mutable_attribute()->RemoveLast();
  EXPECT_THAT(error_of(huge, x), HasSubstr("vectors_per_class"));
  ModelBuilder shifts;
  svm_node(shifts, {1, -1, -1}, {0.5f, 1});
  EXPECT_THAT(error_of(shifts, x), HasSubstr("expected 1, one for each pair of classes, got 2"));
  ModelBuilder probit;
  AttributeProto& attribute = *svm_node(probit, {1, -1, -1}, {0.5f}).add_attribute();
  attribute.set_name("post_transform");
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s("PROBIT");
  EXPECT_THAT(error_of(probit, x), HasSubstr("SVMClassifier: post_transform PROBIT"));
}

TEST(Text, TheCApiTellsStringsAndColumns) {
  const auto load = [](const ModelBuilder& model) {
    const std::string bytes = model.bytes();
    heddle_engine* engine = nullptr;
    EXPECT_EQ(heddle_engine_load_onnx_bytes(bytes.data(), bytes.size(), nullptr, nullptr, &engine),
              HEDDLE_OK)
        << heddle_last_error();
    return engine;
  };
  heddle_engine* comparing = load(comparing_model());
  heddle_value_info info{};
  ASSERT_EQ(heddle_engine_input_info(comparing, 0, &info), HEDDLE_OK);
  EXPECT_EQ(info.dtype, HEDDLE_I64);
  EXPECT_NE(info.is_text, 0);
  EXPECT_EQ(info.column_count, 0u);
  ASSERT_EQ(heddle_engine_string_count(comparing), 1u);
  const char* string = nullptr;
  std::size_t length = 0;
  ASSERT_EQ(heddle_engine_string(comparing, 0, &string, &length), HEDDLE_OK);
  EXPECT_EQ(std::string(string, length), "yes");
  EXPECT_EQ(heddle_engine_string(comparing, 1, &string, &length), HEDDLE_ERROR_ARGUMENT);
  EXPECT_EQ(heddle_engine_code_of(comparing, "yes", 3), 0);
  EXPECT_EQ(heddle_engine_code_of(comparing, "ye", 2), -1);
  heddle_engine_free(comparing);

  heddle_engine* zipping = load(zipping_model({"cat", "dog"}));
  ASSERT_EQ(heddle_engine_output_info(zipping, 0, &info), HEDDLE_OK);
  EXPECT_EQ(info.is_text, 0);
  ASSERT_EQ(info.column_count, 2u);
  EXPECT_STREQ(info.columns[1], "dog");
  heddle_engine_free(zipping);
}

}  // namespace
}  // namespace heddle::onnx_test
