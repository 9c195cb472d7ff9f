// Small ONNX models made in the test.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/onnx.h"

namespace heddle::onnx_format {
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace heddle::onnx_format

namespace heddle::onnx_test {

using namespace onnx_format;

constexpr int kFloat = 1;  ///< TensorProto::FLOAT

/// A model of domain ai.onnx, version 17, that grows by calls.
class ModelBuilder {
 public:
  ModelBuilder();

  ModelProto& proto() { return *proto_; }
  GraphProto& graph();

  /// A dimension is a number, or a name where it is not one; an empty one has neither.
  ModelBuilder& input(const std::string& name, const std::vector<std::string>& dims,
                      int dtype = kFloat);
  ModelBuilder& output(const std::string& name, int dtype = kFloat);
  NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs, const std::string& domain = {});
  TensorProto& initializer(const std::string& name, const std::vector<std::int64_t>& dims,
                           int dtype);
  ModelBuilder& ints(const std::string& name, const std::vector<std::int64_t>& values);

  static void fill(NodeProto& node, const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& outputs, const std::string& domain = {});
  static void set_int(NodeProto& node, const std::string& name, std::int64_t value);
  static void set_ints(NodeProto& node, const std::string& name,
                       const std::vector<std::int64_t>& values);

  std::string bytes() const;
  Engine load(const onnx::Constants& constants = {}) const;

 private:
  std::shared_ptr<ModelProto> proto_;
};

inline Tensor ones(Sizes sizes) { return Tensor::full(f32, std::move(sizes), 1); }

constexpr const char* kMicrosoft = "com.microsoft";

/// Numbers between -1 and 1.
inline Tensor waves(Sizes sizes, double step) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    tensor.data_as<float>()[k] = static_cast<float>(std::sin(step * static_cast<double>(k + 1)));
  return tensor;
}

/// y = relu(x), x of any one size.
inline ModelBuilder relu_model() {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  model.node("Relu", {"x"}, {"y"});
  return model;
}

}  // namespace heddle::onnx_test
