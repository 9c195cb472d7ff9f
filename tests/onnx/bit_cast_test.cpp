// The bits of elements as elements of another dtype.

#include <bit>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "engine/onnx/onnx.pb.h"
#include "heddle/custom_op.h"
#include "heddle/error.h"
#include "heddle/ops.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;

ModelBuilder bits_model(int from, int to) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(26);
  model.input("x", {"n", "m"}, from).output("y", to);
  model.node("Transpose", {"x"}, {"turned"});
  ModelBuilder::set_int(model.node("BitCast", {"turned"}, {"y"}), "to", to);
  return model;
}

TEST(BitCast, OfRealsThatTheRunComputes) {
  Engine engine = bits_model(TensorProto::FLOAT, TensorProto::INT32).load();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor got = engine.run({Tensor::of<float>({1, -0.0f, 2, nan}, {2, 2})})[0];
  EXPECT_THAT(got.to_doubles(),
              ElementsAre(0x3f800000, 0x40000000, std::numeric_limits<std::int32_t>::min(),
                          std::bit_cast<std::int32_t>(nan)));
  EXPECT_THAT(engine.run({Tensor::zeros(f32, {0, 3})})[0].sizes(), ElementsAre(3, 0));
}

TEST(BitCast, OfIntegersIsArithmetic) {
  Engine engine = bits_model(TensorProto::INT8, TensorProto::UINT8).load();
  const Tensor got = engine.run({Tensor::of<std::int8_t>({-1, 2, -128, 127}, {1, 4})})[0];
  EXPECT_THAT(got.to_doubles(), ElementsAre(255, 2, 128, 127));
}

TEST(BitCast, C1EquallyWide) {
  const Tensor x = ones({2});
  EXPECT_THROW(call("heddle::bit_cast", {x, f64}), DTypeError);
  EXPECT_THROW(bits_model(TensorProto::FLOAT, TensorProto::INT64).load().run({ones({1, 2})}),
               ModelError);
}

TEST(BitCast, C2NotToBool) {
  EXPECT_THROW(call("heddle::bit_cast", {Tensor::zeros(u8, {2}), boolean}), DTypeError);
  EXPECT_THROW(
      bits_model(TensorProto::UINT8, TensorProto::BOOL).load().run({Tensor::zeros(u8, {1, 2})}),
      UnsupportedError);
}

}  // namespace
}  // namespace heddle::onnx_test
