// Weights are read from where they lie in the file, not through the parser.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/onnx/lean_model.h"
#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

constexpr std::int64_t kLong = 2000;  // 8000 bytes: left where they are
constexpr std::int64_t kShort = 3;    // parsed

std::string raw_floats(std::int64_t count, float first) {
  std::string raw;
  for (std::int64_t k = 0; k < count; ++k) {
    const float value = first + static_cast<float>(k);
    raw.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return raw;
}

/// long + x and short * z; the length of `name` moves what follows it in the file.
ModelBuilder model_of_two(const std::string& name = "two") {
  ModelBuilder model;
  model.graph().set_name(name);
  model.input("x", {"2000"}).input("z", {"3"}).output("y").output("w");
  model.initializer("long", {kLong}, TensorProto::FLOAT).set_raw_data(raw_floats(kLong, 1));
  model.initializer("short", {kShort}, TensorProto::FLOAT).set_raw_data(raw_floats(kShort, 5));
  model.node("Add", {"long", "x"}, {"y"});
  model.node("Mul", {"short", "z"}, {"w"});
  return model;
}

/// A Constant node of `count` floats from `first` on.
NodeProto& constant(ModelBuilder& model, const std::string& output, std::int64_t count,
                    float first) {
  NodeProto& node = model.node("Constant", {}, {output});
  auto* value = node.add_attribute();
  value->set_name("value");
  value->set_type(onnx_format::AttributeProto::TENSOR);
  value->mutable_t()->set_name("shared");
  value->mutable_t()->set_data_type(TensorProto::FLOAT);
  value->mutable_t()->add_dims(count);
  value->mutable_t()->set_raw_data(raw_floats(count, first));
  return node;
}

/// The same where both are Constant nodes, and the names of their tensors are alike.
ModelBuilder model_of_constants(const std::string& name = "two") {
  ModelBuilder model;
  model.graph().set_name(name);
  model.input("x", {"2000"}).input("z", {"3"}).output("y").output("w");
  constant(model, "long", kLong, 1);
  constant(model, "short", kShort, 5);
  model.node("Add", {"long", "x"}, {"y"});
  model.node("Mul", {"short", "z"}, {"w"});
  return model;
}

void expect_right(Engine engine) {
  const std::vector<Tensor> results = engine.run({ones({kLong}), ones({kShort})});
  for (std::int64_t k = 0; k < kLong; ++k)
    ASSERT_EQ(results[0].to_doubles()[static_cast<std::size_t>(k)], static_cast<double>(k + 2));
  EXPECT_EQ(results[1].to_doubles(), (std::vector<double>{5, 6, 7}));
}

}  // namespace

TEST(ModelWeights, LeanModelsHaveAllButLargeRawData) {
  const std::string bytes = model_of_two().bytes();
  const auto lean = onnx::without_weights(bytes);
  ASSERT_TRUE(lean);
  EXPECT_LT(lean->bytes.size() + 7900, bytes.size());
  ASSERT_EQ(lean->weights.size(), 2u);
  EXPECT_EQ(lean->weights[0], raw_floats(kLong, 1));
  EXPECT_TRUE(lean->weights[1].empty());
  const std::string_view whole = bytes;
  EXPECT_GE(lean->weights[0].data(), whole.data());
  EXPECT_LT(lean->weights[0].data(), whole.data() + whole.size()) << "no copy";
  ModelProto again;
  ASSERT_TRUE(again.ParseFromString(lean->bytes));
  again.mutable_graph()->mutable_initializer(0)->set_raw_data(raw_floats(kLong, 1));
  EXPECT_EQ(again.SerializeAsString(), bytes);
}

TEST(ModelWeights, ModelsOfLittleRawDataAreLeftToTheParser) {
  ModelBuilder model = model_of_two();
  TensorProto& listed = model.initializer("listed", {kLong * 2}, TensorProto::FLOAT);
  for (std::int64_t k = 0; k < kLong * 2; ++k) listed.add_float_data(1);
  EXPECT_FALSE(onnx::without_weights(model.bytes()));
  EXPECT_FALSE(onnx::without_weights(relu_model().bytes()));
}

TEST(ModelWeights, LargeConstantsBecomeInitialisers) {
  const std::string bytes = model_of_constants().bytes();
  const auto lean = onnx::without_weights(bytes);
  ASSERT_TRUE(lean);
  EXPECT_EQ(lean->constants, 1u);
  ASSERT_EQ(lean->weights.size(), 1u);
  EXPECT_EQ(lean->weights[0], raw_floats(kLong, 1));
  ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(lean->bytes));
  ASSERT_EQ(parsed.graph().node_size(), 3);
  EXPECT_EQ(parsed.graph().node(0).output(0), "short");
  ASSERT_EQ(parsed.graph().initializer_size(), 1);
  EXPECT_EQ(parsed.graph().initializer(0).name(), "long");
  EXPECT_EQ(parsed.graph().initializer(0).dims(0), kLong);
  const Engine engine = model_of_constants().load();
  ASSERT_EQ(engine.parameters().size(), 1u);
  EXPECT_EQ(engine.parameters()[0].name, "long");
}

TEST(ModelWeights, ConstantsOfAnotherFormStayNodes) {
  ModelBuilder two_attributes = model_of_constants();
  ModelBuilder::set_int(*two_attributes.graph().mutable_node(0), "axis", 1);
  EXPECT_FALSE(onnx::without_weights(two_attributes.bytes()));
  ModelBuilder of_a_domain = model_of_constants();
  of_a_domain.graph().mutable_node(0)->set_domain("mine");
  EXPECT_FALSE(onnx::without_weights(of_a_domain.bytes()));
  ModelBuilder without_result = model_of_constants();
  without_result.graph().mutable_node(0)->clear_output();
  EXPECT_FALSE(onnx::without_weights(without_result.bytes()));
  ModelBuilder of_another_type = model_of_constants();
  of_another_type.graph().mutable_node(0)->mutable_attribute(0)->set_type(AttributeProto::FLOATS);
  EXPECT_FALSE(onnx::without_weights(of_another_type.bytes()));
}

// As initialisers they would be there before all nodes.
TEST(ModelWeights, AConstantThatIsReadBeforeItComesIsFound) {
  for (const bool inside : {false, true}) {
    ModelBuilder model;
    model.input("x", {"2000"}).input("flag", {}, TensorProto::BOOL).output("y");
    if (inside) {
      NodeProto& node = model.node("If", {"flag"}, {"y"});
      for (const char* branch : {"then_branch", "else_branch"}) {
        AttributeProto& attribute = *node.add_attribute();
        attribute.set_name(branch);
        attribute.set_type(AttributeProto::GRAPH);
        GraphProto& graph = *attribute.mutable_g();
        ModelBuilder::fill(*graph.add_node(), "Add", {"long", "x"}, {"sum"});
        graph.add_output()->set_name("sum");
      }
    } else {
      model.node("Add", {"long", "x"}, {"y"});
    }
    constant(model, "long", kLong, 1);
    EXPECT_FALSE(onnx::without_weights(model.bytes()));
    std::vector<Tensor> inputs{ones({kLong}), Tensor::scalar_int(boolean, 1)};
    const std::vector<double> sums = model.load().run(inputs)[0].to_doubles();
    EXPECT_EQ(sums.front(), 2);
    EXPECT_EQ(sums.back(), kLong + 1);
  }
}

TEST(ModelWeights, AConstantOfATakenNameIsAnError) {
  for (const char* name : {"x", "y"}) {
    ModelBuilder model = model_of_constants();
    constant(model, name, kLong, 1);
    try {
      model.load();
      FAIL() << "no error";
    } catch (const ModelError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("model: value defined twice")) << name;
    }
  }
}

TEST(ModelWeights, BytesThatAreNoModelAreLeftToTheParser) {
  const std::string bytes = model_of_two().bytes();
  for (const std::string& whole : {bytes, model_of_constants().bytes()}) {
    for (std::size_t size = 0; size < whole.size(); size += size + 40 < whole.size() ? 97 : 1) {
      ModelProto parsed;
      const std::string cut = whole.substr(0, size);
      EXPECT_TRUE(!onnx::without_weights(cut) || parsed.ParseFromString(cut)) << size;
    }
  }
  EXPECT_FALSE(onnx::without_weights(bytes + bytes)) << "two graphs, which the parser merges";
  EXPECT_FALSE(onnx::without_weights(std::string(100, '\xff')));
}

TEST(ModelWeights, FilesAndBytesGiveTheSameAtEveryAlignment) {
  const std::string path =
      testing::TempDir() + "heddle_weights_" + std::to_string(::getpid()) + ".onnx";
  for (int shift = 0; shift < 8; ++shift) {
    const std::string name(static_cast<std::size_t>(shift / 2 + 1), 'd');
    const std::string bytes =
        (shift % 2 == 0 ? model_of_two(name) : model_of_constants(name)).bytes();
    std::ofstream(path, std::ios::binary) << bytes;
    expect_right(onnx::load(path));
    std::string gone = bytes;
    Engine engine = onnx::load_bytes(gone.data(), gone.size());
    gone.assign(gone.size(), '\x7f');
    expect_right(std::move(engine));
  }
  std::filesystem::remove(path);
}

TEST(ModelWeights, WrongSizesOfLargeOnesAreErrors) {
  ModelBuilder model = model_of_two();
  model.graph().mutable_initializer(0)->set_raw_data(raw_floats(kLong + 1, 1));
  try {
    model.load();
    FAIL() << "no error";
  } catch (const ModelError& error) {
    EXPECT_STREQ(error.what(),
                 "tensor long: raw data at initialiser long: expected 8000 bytes, got 8004");
  }
}

}  // namespace heddle::onnx_test
