// Quantised models (QDQ) on the simulated CUDA device: their kernels multiply, or read, the bytes that the file holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "tests/onnx/model_builder.h"
#include "tests/support/json.h"

namespace heddle::onnx_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class QuantisedModel : public ModelBuilder {
 public:
  QuantisedModel& bytes(const std::string& name, const std::vector<std::int64_t>& dims, int dtype) {
    TensorProto& tensor = initializer(name, dims, dtype);
    std::int64_t count = 1;
    for (const std::int64_t size : dims) count *= size;
    for (std::int64_t k = 0; k < count; ++k)
      tensor.add_int32_data(static_cast<int>(k * 37 % 251) -
                            (dtype == TensorProto::INT8 ? 125 : 0));
    return *this;
  }
  QuantisedModel& scales(const std::string& name, const std::vector<std::int64_t>& dims,
                         float first) {
    TensorProto& tensor = initializer(name, dims, TensorProto::FLOAT);
    for (std::int64_t k = 0; k < (dims.empty() ? 1 : dims[0]); ++k)
      tensor.add_float_data(first * static_cast<float>(1 + k % 3));
    return *this;
  }
  QuantisedModel& byte(const std::string& name, int value) {
    initializer(name, {}, TensorProto::UINT8).add_int32_data(value);
    return *this;
  }
  Engine on(Device device) const {
    const std::string text = ModelBuilder::bytes();
    EngineOptions options;
    options.device = device;
    return onnx::load_bytes(text.data(), text.size(), options);
  }
};

std::vector<std::string> kernels_of(Engine& engine, const std::vector<Tensor>& inputs) {
  std::vector<std::string> names;
  const auto plan = test::Json::parse(engine.plan_json(inputs));
  for (const auto& step : plan.at("steps")) names.push_back(step.at("kernel"));
  return names;
}

Tensor waves(Sizes sizes) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    static_cast<float*>(tensor.data())[k] = static_cast<float>((k * 13) % 41) / 20 - 1;
  return tensor;
}

void expect_agrees(const Tensor& got, const Tensor& want, double tolerance) {
  const std::vector<double> a = got.to_doubles();
  const std::vector<double> b = want.to_doubles();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t k = 0; k < a.size(); ++k)
    ASSERT_NEAR(a[k], b[k], tolerance * (1 + std::abs(b[k]))) << "element " << k;
}

TEST(QuantisedModels, ConvolutionsMultiplyBytesOnCuda) {
  QuantisedModel model;
  model.input("x", {"n", "24", "h", "w"}).output("y");
  model.scales("xs", {}, 0.01f).byte("xz", 93).scales("ws", {32}, 0.001f).scales("ys", {}, 0.1f);
  model.byte("yz", 11).bytes("w", {32, 24, 3, 3}, TensorProto::INT8).scales("b", {32}, 0.5f);
  model.node("QuantizeLinear", {"x", "xs", "xz"}, {"xq"});
  model.node("DequantizeLinear", {"xq", "xs", "xz"}, {"xd"});
  model.node("DequantizeLinear", {"w", "ws"}, {"wd"});
  ModelBuilder::set_int(*model.graph().mutable_node(2), "axis", 0);
  NodeProto& conv = model.node("Conv", {"xd", "wd", "b"}, {"c"});
  AttributeProto& pads = *conv.add_attribute();
  pads.set_name("pads");
  pads.set_type(AttributeProto::INTS);
  for (int k = 0; k < 4; ++k) pads.add_ints(1);
  model.node("Relu", {"c"}, {"r"});
  model.node("QuantizeLinear", {"r", "ys", "yz"}, {"q"});
  model.node("DequantizeLinear", {"q", "ys", "yz"}, {"y"});
  Engine cuda = model.on(Device::cuda_sim());
  Engine reference = model.on(Device::reference());
  for (const std::int64_t size : {1, 7, 12}) {
    const std::vector<Tensor> inputs{waves({2, 24, size, size})};
    // A sum that lies between two bytes may become either: one step of the result's scale.
    expect_agrees(cuda.run(inputs)[0], reference.run(inputs)[0], 0.1001);
  }
  EXPECT_THAT(kernels_of(cuda, {waves({2, 24, 7, 7})}),
              ::testing::Contains(HasSubstr("int8_conv")));
}

TEST(QuantisedModels, WeightsAloneAreReadAsBytesOnCuda) {
  QuantisedModel model;
  model.input("x", {"n", "64"}).output("y");
  model.scales("ws", {40}, 0.01f).bytes("w", {64, 40}, TensorProto::UINT8);
  model.bytes("wz", {40}, TensorProto::UINT8);
  model.node("DequantizeLinear", {"w", "ws", "wz"}, {"wd"});
  model.node("MatMul", {"x", "wd"}, {"y"});
  Engine cuda = model.on(Device::cuda_sim());
  Engine reference = model.on(Device::reference());
  for (const std::int64_t rows : {1, 9}) {
    const std::vector<Tensor> inputs{waves({rows, 64})};
    expect_agrees(cuda.run(inputs)[0], reference.run(inputs)[0], 1e-5);
  }
  EXPECT_THAT(kernels_of(cuda, {waves({1, 64})}), ElementsAre("dequantised_matmul"));
}

}  // namespace
}  // namespace heddle::onnx_test
