// Padding that keeps sizes (auto_pad), of open sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAreArray;

/// y = op(x) over one open dimension, with windows of `kernel` ones at every `stride`th element.
ModelBuilder padded_model(const std::string& op, const std::string& padding, std::int64_t kernel,
                          std::int64_t stride) {
  ModelBuilder model;
  model.input("x", {"1", "1", "n"}).output("y");
  std::vector<std::string> inputs{"x"};
  if (op.starts_with("Conv")) {
    auto& w = model.initializer("w", {1, 1, kernel}, TensorProto::FLOAT);
    for (std::int64_t k = 0; k < kernel; ++k) w.add_float_data(static_cast<float>(k + 1));
    inputs.emplace_back("w");
  }
  NodeProto& node = model.node(op, inputs, {"y"});
  ModelBuilder::set_ints(node, "kernel_shape", {kernel});
  ModelBuilder::set_ints(node, "strides", {stride});
  auto* attribute = node.add_attribute();
  attribute->set_name("auto_pad");
  attribute->set_type(AttributeProto::STRING);
  attribute->set_s(padding);
  return model;
}

Tensor counted(std::int64_t size) {
  std::vector<float> values;
  for (std::int64_t k = 0; k < size; ++k) values.push_back(static_cast<float>(k + 1));
  return Tensor::of(std::span<const float>(values), {1, 1, size});
}

/// What a convolution gives by ONNX's definition of the padding.
std::vector<double> convolved(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                              bool upper) {
  const std::int64_t results = (size + stride - 1) / stride;
  const std::int64_t total = std::max<std::int64_t>(0, (results - 1) * stride + kernel - size);
  const std::int64_t low = upper ? total / 2 : total - total / 2;
  std::vector<double> wanted;
  for (std::int64_t y = 0; y < results; ++y) {
    double sum = 0;
    for (std::int64_t k = 0; k < kernel; ++k) {
      const std::int64_t x = y * stride + k - low;
      if (x >= 0 && x < size) sum += static_cast<double>((x + 1) * (k + 1));
    }
    wanted.push_back(sum);
  }
  return wanted;
}

TEST(SamePadding, OneCompileServesAllSizesThatMissTheEndAlike) {
  for (const bool upper : {true, false}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const std::int64_t kernel : {1, 2, 3, 4, 5}) {
        Engine engine =
            padded_model("Conv", upper ? "SAME_UPPER" : "SAME_LOWER", kernel, stride).load();
        for (const std::int64_t size : {6, 12, 18, 7, 13, 8, 20, 24})
          EXPECT_THAT(engine.run({counted(size)})[0].to_doubles(),
                      ElementsAreArray(convolved(size, kernel, stride, upper)))
              << size << " by " << kernel << ", stride " << stride;
        EXPECT_LE(engine.stats().compiles, static_cast<std::uint64_t>(stride))
            << "a compile for each rest of a division by the stride, at most";
      }
    }
  }
}

TEST(SamePadding, PoolsAndTransposedConvolutionsAreOpenToo) {
  Engine pool = padded_model("MaxPool", "SAME_UPPER", 2, 1).load();
  for (const std::int64_t size : {5, 6, 11}) {
    const std::vector<double> result = pool.run({counted(size)})[0].to_doubles();
    ASSERT_EQ(result.size(), static_cast<std::size_t>(size));
    EXPECT_EQ(result[0], 2);
    EXPECT_EQ(result.back(), static_cast<double>(size));
  }
  EXPECT_EQ(pool.stats().compiles, 1u);
  Engine conv = padded_model("ConvTranspose", "SAME_UPPER", 3, 2).load();
  for (const std::int64_t size : {5, 6, 11})
    EXPECT_EQ(conv.run({counted(size)})[0].sizes()[2], 2 * size);
  EXPECT_EQ(conv.stats().compiles, 1u);
}

}  // namespace
}  // namespace heddle::onnx_test
