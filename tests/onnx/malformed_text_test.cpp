// The exact text of each error about a model file; after each, a good model loads and runs.

#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::HasSubstr;

class ModelText : public testing::Test {
 protected:
  ModelText() : folder_(testing::TempDir() + "heddle_model_text_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_ / "model");
  }
  ~ModelText() override { std::filesystem::remove_all(folder_); }

  template <typename E, typename F>
  static std::string text_of(F&& action) {
    std::string text = "no error";
    try {
      action();
    } catch (const E& error) {
      text = error.what();
    } catch (const std::exception& error) {
      text = std::string("another error: ") + error.what();
    }
    Engine good = relu_model().load();
    EXPECT_EQ(good.run({ones({2})})[0].to_doubles(), (std::vector<double>{1, 1}));
    return text;
  }

  template <typename E>
  static std::string text_of_load(const ModelBuilder& model) {
    return text_of<E>([&] { model.load(); });
  }

  /// A model whose initialiser f32[2] lies in an external file of 9 bytes.
  std::string external(const std::string& location, const std::string& offset,
                       const std::string& length = "8") const {
    std::ofstream(folder_ / "model/w.bin", std::ios::binary) << std::string(9, '\1');
    std::ofstream(folder_ / "secret.bin", std::ios::binary) << std::string(9, '\2');
    return text_of<ModelError>([&] {
      const std::string bytes = bytes_of(location, offset, length);
      onnx::load_bytes(bytes.data(), bytes.size(), {}, (folder_ / "model").string());
    });
  }
  /// A model with a tensor of eight bytes that lies outside of it.
  static std::string bytes_of(const std::string& location, const std::string& offset,
                              const std::string& length) {
    ModelBuilder model = relu_model();
    TensorProto& tensor = model.initializer("w", {2}, TensorProto::FLOAT);
    tensor.set_data_location(TensorProto::EXTERNAL);
    for (const auto& [key, value] :
         {std::pair{"location", location}, {"offset", offset}, {"length", length}}) {
      auto* entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    return model.bytes();
  }

  const std::filesystem::path folder_;
};

TEST_F(ModelText, NoModel) {
  const std::string text = "this is not a protobuf message";
  EXPECT_EQ(text_of<ModelError>([&] { onnx::load_bytes(text.data(), text.size()); }),
            "model at bytes: expected an ONNX model, got bytes that do not parse as one");
  EXPECT_EQ(text_of<ModelError>([&] { onnx::load_bytes(nullptr, 0); }),
            "model at bytes: expected an ONNX model, got bytes that do not parse as one");
  EXPECT_EQ(text_of<ModelError>([] { onnx::load("/nowhere/model.onnx"); }),
            "read /nowhere/model.onnx: expected a file, got No such file or directory");
}

TEST_F(ModelText, ATruncatedModel) {
  const std::string whole = relu_model().bytes();
  EXPECT_EQ(text_of<ModelError>([&] { onnx::load_bytes(whole.data(), whole.size() - 3); }),
            "model at bytes: expected an ONNX model, got bytes that do not parse as one");
}

TEST_F(ModelText, AnOpsetFromTheFuture) {
  ModelBuilder model = relu_model();
  model.proto().mutable_opset_import(0)->set_version(99);
  EXPECT_EQ(text_of_load<ModelError>(model), "model: opset at bytes: expected 1 to 28, got 99");
}

TEST_F(ModelText, ACycle) {
  ModelBuilder model;
  model.input("x", {"4"}).output("a");
  model.node("Add", {"x", "b"}, {"a"});
  model.node("Relu", {"a"}, {"b"});
  EXPECT_EQ(
      text_of_load<ModelError>(model),
      "model: node the_Relu (Relu) at bytes: expected no cycle of nodes, got a, which depends "
      "on what the node makes");
}

TEST_F(ModelText, UndefinedAndRepeatedValues) {
  ModelBuilder missing;
  missing.input("x", {"4"}).output("y");
  missing.node("Add", {"x", "nothing"}, {"y"});
  EXPECT_EQ(
      text_of_load<ModelError>(missing),
      "model: node the_Add (Add) at bytes: expected inputs that the model defines, got nothing");
  ModelBuilder twice = relu_model();
  twice.node("Abs", {"x"}, {"y"});
  EXPECT_EQ(text_of_load<ModelError>(twice),
            "model: value defined twice at bytes: expected one definition of each value, got y "
            "(node the_Abs)");
}

TEST_F(ModelText, AbsurdSizes) {
  const auto with = [](const std::vector<std::int64_t>& dims, const std::string& raw) {
    ModelBuilder model = relu_model();
    TensorProto& tensor = model.initializer("w", dims, TensorProto::FLOAT);
    if (!raw.empty()) tensor.set_raw_data(raw);
    return text_of_load<ModelError>(model);
  };
  EXPECT_EQ(with({std::int64_t{1} << 40, std::int64_t{1} << 40}, ""),
            "tensor w: size at initialiser w: expected sizes of 0 to 2^48 elements in all, got "
            "1099511627776");
  EXPECT_EQ(with({-1}, ""),
            "tensor w: size at initialiser w: expected sizes of 0 to 2^48 elements in all, got -1");
  EXPECT_EQ(with({std::int64_t{1} << 32}, "1234"),
            "tensor w: raw data at initialiser w: expected 17179869184 bytes, got 4");
  EXPECT_EQ(with({std::int64_t{1} << 32}, ""),
            "tensor w: number of values at initialiser w: expected 4294967296, got fewer");
}

TEST_F(ModelText, ExternalDataStaysInItsFolder) {
  EXPECT_EQ(external("w.bin", "0"), "no error");
  EXPECT_EQ(external("w.bin", "1"), "no error") << "an address that is no multiple of 4 is copied";
  EXPECT_EQ(external("../secret.bin", "0"),
            "external data at initialiser w: expected a path inside the model's folder, got "
            "../secret.bin");
  EXPECT_EQ(
      external("/etc/passwd", "0"),
      "external data at initialiser w: expected a path inside the model's folder, got /etc/passwd");
  std::filesystem::create_symlink(folder_ / "secret.bin", folder_ / "model/link.bin");
  EXPECT_EQ(
      external("link.bin", "0"),
      "external data at initialiser w: expected a path inside the model's folder, got link.bin");
}

/// As caches of model hubs lay files: names are links to files that are called by their hashes.
TEST_F(ModelText, ExternalDataBesideTheFileThatAModelLinksTo) {
  namespace fs = std::filesystem;
  for (const char* name : {"blobs", "snapshots/1/onnx"}) fs::create_directories(folder_ / name);
  const fs::path model = folder_ / "snapshots/1/onnx/model.onnx";
  std::ofstream(folder_ / "blobs/1234", std::ios::binary) << bytes_of("model.onnx_data", "0", "8");
  std::ofstream(folder_ / "blobs/5678", std::ios::binary) << std::string(8, '\1');
  std::ofstream(folder_ / "secret.bin", std::ios::binary) << std::string(9, '\2');
  fs::create_symlink("../../../blobs/1234", model);
  const auto error = [&] { return text_of<ModelError>([&] { onnx::load(model.string()); }); };
  EXPECT_THAT(error(), HasSubstr("model.onnx_data"));
  const fs::path data = folder_ / "snapshots/1/onnx/model.onnx_data";
  fs::create_symlink("../../../blobs/5678", data);
  EXPECT_EQ(error(), "no error");
  fs::remove(data);
  fs::create_symlink("../../../secret.bin", data);
  EXPECT_EQ(error(),
            "external data at initialiser w: expected a path inside the model's folder, got "
            "model.onnx_data");
  fs::remove(data);
  fs::rename(folder_ / "blobs/5678", folder_ / "blobs/model.onnx_data");
  EXPECT_EQ(error(), "no error") << "beside the file itself";
}

TEST_F(ModelText, ExternalDataThatIsNotThere) {
  EXPECT_EQ(external("w.bin", "4"),
            "tensor w: external data at initialiser w: expected 8 bytes at offset 4, got a file of "
            "9 bytes");
  EXPECT_EQ(external("w.bin", "-4"),
            "external data at initialiser w: expected a number >= 0, got -4");
  EXPECT_EQ(external("w.bin", "99999999999999999999"),
            "external data at initialiser w: expected a number >= 0, got 99999999999999999999");
  EXPECT_EQ(external("w.bin", "0", "4"),
            "tensor w: external length at initialiser w: expected 8 bytes, got 4");
  EXPECT_THAT(external("missing.bin", "0"), HasSubstr("missing.bin"));
}

TEST_F(ModelText, AnUnknownOpIsNamedWithItsNodeAndDomain) {
  ModelBuilder model;
  model.input("x", {"4"}).output("y");
  model.node("Frobnicate", {"x"}, {"y"}, "org.example");
  Engine engine = model.load();
  EXPECT_EQ(text_of<UnsupportedError>([&] { engine.run({ones({4})}); }),
            "op Frobnicate of domain org.example at the_Frobnicate (org.example Frobnicate): "
            "expected an op that the importer knows");
  EXPECT_EQ(text_of<UnsupportedError>([&] { engine.run({ones({4})}); }),
            "op Frobnicate of domain org.example at the_Frobnicate (org.example Frobnicate): "
            "expected an op that the importer knows")
      << "the second time";
}

TEST_F(ModelText, AFunctionThatCallsItself) {
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
  EXPECT_EQ(text_of<ModelError>([&] { engine.run({ones({4})}); }),
            "model: nesting of functions and branches at the_Again (local Again): expected at most "
            "64 levels");
}

TEST_F(ModelText, TypesThatAreNoTensors) {
  ModelBuilder model = relu_model();
  model.graph().mutable_input(0)->mutable_type()->mutable_sequence_type();
  EXPECT_EQ(text_of_load<UnsupportedError>(model),
            "model: type of x: expected a tensor, got a sequence, map, optional or sparse tensor");
  ModelBuilder complex = relu_model();
  complex.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      TensorProto::COMPLEX64);
  EXPECT_EQ(text_of_load<UnsupportedError>(complex),
            "ONNX element type at x: expected float, double, float16, bfloat16, a float of 8 or 4 "
            "bits, int2, uint2, int4, uint4, int8, uint8, int16, uint16, int32, uint32, int64, "
            "uint64 or bool, got COMPLEX64");
}

TEST_F(ModelText, OperandsOfDifferentDTypes) {
  const auto text = [](const std::string& op, const std::vector<int>& dtypes,
                       const std::vector<std::string>& dims = {"2", "2"}) {
    return text_of<ModelError>([&] {
      ModelBuilder model;
      std::vector<std::string> names;
      for (const int dtype : dtypes) {
        names.push_back("x" + std::to_string(names.size()));
        model.input(names.back(), dims, dtype);
      }
      model.output("y");
      NodeProto& node = model.node(op, names, {"y"});
      if (op == "Concat") ModelBuilder::set_int(node, "axis", 0);
      std::vector<Tensor> inputs;
      for (const int dtype : dtypes)
        inputs.push_back(Tensor::full(dtype == kFloat              ? f32
                                      : dtype == TensorProto::BOOL ? boolean
                                                                   : i64,
                                      {2, 2}, 1));
      model.load().run(inputs);
    });
  };
  const int i = TensorProto::INT64;
  for (const std::string op : {"Add", "Equal", "Max", "MatMul", "Gemm", "Mod", "PRelu"})
    EXPECT_EQ(text(op, {kFloat, i}), op + ": dtype of input 1 at the_" + op + " (ai.onnx " + op +
                                         "): expected f32 as input 0, got i64");
  EXPECT_EQ(text("Concat", {i, i, kFloat}),
            "Concat: dtype of input 2 at the_Concat (ai.onnx Concat): expected i64 as input 0, got "
            "f32");
  EXPECT_EQ(
      text("Where", {TensorProto::BOOL, kFloat, i}),
      "Where: dtype of input 2 at the_Where (ai.onnx Where): expected f32 as input 1, got i64");
  EXPECT_EQ(text("Pow", {kFloat, i}), "no error") << "the exponent may have any dtype";
}

TEST_F(ModelText, WhatGemmAddsIsNoLargerThanItsProduct) {
  const auto text = [](const Sizes& sizes) {
    return text_of<ModelError>([&] {
      ModelBuilder model;
      std::vector<std::string> dims;
      for (const std::int64_t size : sizes) dims.push_back(std::to_string(size));
      model.input("a", {"1", "2"}).input("b", {"2", "3"}).input("c", dims).output("y");
      model.node("Gemm", {"a", "b", "c"}, {"y"});
      model.load().run({ones({1, 2}), ones({2, 3}), ones(sizes)});
    });
  };
  EXPECT_EQ(
      text({4, 1, 3}),
      "Gemm: C at the_Gemm (ai.onnx Gemm): expected sizes that repeat to [1, 3], got [4, 1, 3]");
  EXPECT_EQ(text({2, 3}),
            "Gemm: C at the_Gemm (ai.onnx Gemm): expected sizes that repeat to [1, 3], got [2, 3]");
  for (const Sizes& fine : {Sizes{}, {1}, {3}, {1, 1}, {1, 3}}) EXPECT_EQ(text(fine), "no error");
}

TEST_F(ModelText, AnOutputOfAnotherDTypeThanItIsDeclared) {
  EXPECT_EQ(text_of<ModelError>([] {
              ModelBuilder model;
              model.input("x", {"n"}).output("y");
              model.node("Shape", {"x"}, {"y"});
              model.load().run({ones({2})});
            }),
            "model: declared dtype of output y: expected i64, got f32");
}

}  // namespace
}  // namespace heddle::onnx_test
