// Files that are broken or meant to harm end in typed errors.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::HasSubstr;

/// The message of the error of type E that `call` throws; fails if it throws none.
template <typename E, typename F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error of the expected type";
  return {};
}

TEST(Malformed, BytesThatAreNoModel) {
  const std::string text = "this is not a protobuf message";
  EXPECT_THROW(onnx::load_bytes(text.data(), text.size()), ModelError);
  EXPECT_THROW(onnx::load_bytes(nullptr, 0), ModelError);
}

TEST(Malformed, FileThatIsNotThere) { EXPECT_THROW(onnx::load("/nowhere/model.onnx"), ModelError); }

TEST(Malformed, EveryPrefixAndFlippedByteIsAnErrorOrAModel) {
  const std::string whole = relu_model().bytes();
  const auto try_bytes = [](const std::string& bytes) {
    try {
      onnx::load_bytes(bytes.data(), bytes.size());
    } catch (const Error&) {
    }
  };
  for (std::size_t size = 0; size < whole.size(); ++size) try_bytes(whole.substr(0, size));
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    try_bytes(bytes);
  }
}

TEST(Malformed, OpsetOutOfRange) {
  ModelBuilder model = relu_model();
  model.proto().mutable_opset_import(0)->set_version(99);
  EXPECT_THAT(message_of<ModelError>([&] { model.load(); }), HasSubstr("opset"));
}

TEST(Malformed, Cycle) {
  ModelBuilder model;
  model.input("x", {"4"}).output("a");
  model.node("Add", {"x", "b"}, {"a"});
  model.node("Relu", {"a"}, {"b"});
  EXPECT_THAT(message_of<ModelError>([&] { model.load(); }), HasSubstr("cycle"));
}

TEST(Malformed, UndefinedAndRepeatedValues) {
  ModelBuilder missing;
  missing.input("x", {"4"}).output("y");
  missing.node("Add", {"x", "nothing"}, {"y"});
  EXPECT_THAT(message_of<ModelError>([&] { missing.load(); }), HasSubstr("nothing"));
  ModelBuilder twice = relu_model();
  twice.node("Abs", {"x"}, {"y"});
  EXPECT_THAT(message_of<ModelError>([&] { twice.load(); }), HasSubstr("twice"));
}

TEST(Malformed, AbsurdSizes) {
  ModelBuilder model = relu_model();
  model.initializer("w", {std::int64_t{1} << 40, std::int64_t{1} << 40}, TensorProto::FLOAT);
  EXPECT_THROW(model.load(), ModelError);
  ModelBuilder negative = relu_model();
  negative.initializer("w", {-1}, TensorProto::FLOAT);
  EXPECT_THROW(negative.load(), ModelError);
  ModelBuilder claimed = relu_model();
  claimed.initializer("w", {std::int64_t{1} << 32}, TensorProto::FLOAT).set_raw_data("1234");
  EXPECT_THROW(claimed.load(), ModelError);
  ModelBuilder empty = relu_model();
  empty.initializer("w", {std::int64_t{1} << 32}, TensorProto::FLOAT);
  EXPECT_THROW(empty.load(), ModelError);
}

TEST(Malformed, ExternalDataOutsideTheFolder) {
  const std::filesystem::path folder = testing::TempDir() + "heddle_external";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "w.bin", std::ios::binary) << "12345678";
  const auto load = [&](const std::string& location, const std::string& offset) {
    ModelBuilder model = relu_model();
    TensorProto& tensor = model.initializer("w", {2}, TensorProto::FLOAT);
    tensor.set_data_location(TensorProto::EXTERNAL);
    auto* entry = tensor.add_external_data();
    entry->set_key("location");
    entry->set_value(location);
    entry = tensor.add_external_data();
    entry->set_key("offset");
    entry->set_value(offset);
    const std::string bytes = model.bytes();
    onnx::load_bytes(bytes.data(), bytes.size(), {}, folder.string());
  };
  EXPECT_NO_THROW(load("w.bin", "0"));
  EXPECT_THROW(load("../w.bin", "0"), ModelError);
  EXPECT_THROW(load("/etc/passwd", "0"), ModelError);
  EXPECT_THROW(load("w.bin", "4"), ModelError);
  EXPECT_THROW(load("w.bin", "-4"), ModelError);
  EXPECT_THROW(load("w.bin", "99999999999999999999"), ModelError);
  EXPECT_THROW(load("missing.bin", "0"), ModelError);
}

TEST(Unsupported, UnknownOpNamesNodeOpAndDomain) {
  ModelBuilder model;
  model.input("x", {"4"}).output("y");
  model.node("Frobnicate", {"x"}, {"y"}, "org.example");
  Engine engine = model.load();
  const std::string text = message_of<UnsupportedError>([&] { engine.run({ones({4})}); });
  EXPECT_THAT(text, HasSubstr("the_Frobnicate"));
  EXPECT_THAT(text, HasSubstr("op Frobnicate"));
  EXPECT_THAT(text, HasSubstr("org.example"));
}

TEST(Unsupported, ErrorsOfTheEngineNameTheNode) {
  ModelBuilder model;
  model.input("a", {"2", "3"}).input("b", {"2", "3"}).output("y");
  model.node("MatMul", {"a", "b"}, {"y"});
  Engine engine = model.load();
  const std::string text =
      message_of<ShapeError>([&] { engine.run({ones({2, 3}), ones({2, 3})}); });
  EXPECT_THAT(text, HasSubstr("the_MatMul (ai.onnx MatMul)"));
}

TEST(Unsupported, TypesThatAreNoTensors) {
  ModelBuilder model = relu_model();
  model.graph().mutable_input(0)->mutable_type()->mutable_sequence_type();
  EXPECT_THROW(model.load(), UnsupportedError);
  ModelBuilder complex = relu_model();
  complex.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      TensorProto::COMPLEX64);
  EXPECT_THROW(complex.load(), UnsupportedError);
}

TEST(Malformed, FunctionThatCallsItself) {
  ModelBuilder model;
  model.input("x", {"4"}).output("y");
  model.node("Again", {"x"}, {"y"}, "local");
  FunctionProto& function = *model.proto().add_functions();
  function.set_name("Again");
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  ModelBuilder::fill(*function.add_node(), "Again", {"a"}, {"b"}, "local");
  Engine engine = model.load();
  EXPECT_THAT(message_of<ModelError>([&] { engine.run({ones({4})}); }), HasSubstr("nesting"));
}

}  // namespace
}  // namespace heddle::onnx_test
