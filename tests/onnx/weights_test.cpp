// Weights are read from where they lie in the file, not through the parser.

#include <filesystem>
#include <fstream>
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

TEST(ModelWeights, BytesThatAreNoModelAreLeftToTheParser) {
  const std::string bytes = model_of_two().bytes();
  for (std::size_t size = 0; size < bytes.size(); size += size + 40 < bytes.size() ? 97 : 1) {
    ModelProto parsed;
    const std::string cut = bytes.substr(0, size);
    EXPECT_TRUE(!onnx::without_weights(cut) || parsed.ParseFromString(cut)) << size;
  }
  EXPECT_FALSE(onnx::without_weights(bytes + bytes)) << "two graphs, which the parser merges";
  EXPECT_FALSE(onnx::without_weights(std::string(100, '\xff')));
}

TEST(ModelWeights, FilesAndBytesGiveTheSameAtEveryAlignment) {
  const std::string path =
      testing::TempDir() + "heddle_weights_" + std::to_string(::getpid()) + ".onnx";
  for (int shift = 0; shift < 4; ++shift) {
    const std::string bytes =
        model_of_two(std::string(static_cast<std::size_t>(shift + 1), 'd')).bytes();
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
