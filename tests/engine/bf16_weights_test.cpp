// Weights in 16 bits, on request: results are off by no more than the rounding of the weights allows, and the panels
// take half the memory.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "tests/engine/rounded_products.h"

namespace hd = heddle;

namespace {

using hd::tests::rounded_noise;
using hd::tests::share_of_error;

hd::EngineOptions rounding() {
  hd::EngineOptions options;
  options.passes = {{.name = "bf16-weights"}};
  return options;
}

TEST(Bf16Weights, AreOffByTheRoundingOfTheWeights) {
  constexpr std::int64_t kDepth = 300;
  constexpr std::int64_t kColumns = 200;
  const hd::Tensor weights = rounded_noise({kDepth, kColumns}, 1);
  hd::Engine engine([=](const hd::Tensor& x) { return hd::matmul(x, weights); }, rounding());
  for (const std::int64_t rows : {1, 7, 40}) {
    const hd::Tensor x = rounded_noise({rows, kDepth}, 2);
    const hd::Tensor y = engine.run({x})[0];
    ASSERT_EQ(y.dtype(), hd::f32);
    const double most = share_of_error(x, weights, y);
    EXPECT_LE(most, 0x1p-9 + 1e-5) << rows;
    // f32 weights would be off by a thousandth of that.
    EXPECT_GT(most, 0x1p-14);
  }
}

TEST(Bf16Weights, FollowUpdatesOfTheirParameters) {
  const hd::Tensor weights = rounded_noise({80, 64}, 4);
  hd::Engine engine([=](const hd::Tensor& x) { return hd::matmul(x, weights); }, rounding());
  const hd::Tensor x = rounded_noise({3, 80}, 3);
  engine.run({x});
  const std::string name = engine.parameters().at(0).name;
  for (const float value : {0.5f, 1.0f + 0x1p-9f, 3.0f}) {
    engine.update_parameters({{name, hd::Tensor::full(hd::f32, {80, 64}, value)}});
    const hd::Tensor y = engine.run({x})[0];
    double sum = 0;
    for (int k = 0; k < 80; ++k) sum += x.data_as<float>()[k];
    // 1 + 2^-9 lies halfway between two numbers of 8 bits, and is rounded to the even one.
    const double used = value == 1.0f + 0x1p-9f ? 1 : static_cast<double>(value);
    EXPECT_NEAR(y.data_as<float>()[0], used * sum, 1e-4) << value;
  }
}

}  // namespace
