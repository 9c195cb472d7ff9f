// Weights in 16 bits, on request: results are off by no more than the rounding of the weights allows, and the panels
// take half the memory.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

hd::Tensor noise(hd::Sizes sizes, std::uint32_t seed) {
  hd::Tensor tensor = hd::Tensor::empty(hd::f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    seed = seed * 1664525u + 1013904223u;
    tensor.data_as<float>()[k] = static_cast<float>(seed >> 8) * 0x1p-23f - 1;
  }
  return tensor;
}

hd::EngineOptions rounding() {
  hd::EngineOptions options;
  options.passes = {{.name = "bf16-weights"}};
  return options;
}

TEST(Bf16Weights, AreOffByTheRoundingOfTheWeights) {
  constexpr std::int64_t kDepth = 300;
  constexpr std::int64_t kColumns = 200;
  const hd::Tensor weights = noise({kDepth, kColumns}, 1);
  hd::Engine engine([=](const hd::Tensor& x) { return hd::matmul(x, weights); }, rounding());
  for (const std::int64_t rows : {1, 7, 40}) {
    const hd::Tensor x = noise({rows, kDepth}, 2);
    const hd::Tensor y = engine.run({x})[0];
    ASSERT_EQ(y.dtype(), hd::f32);
    double most = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < kColumns; ++c) {
        double want = 0;
        double size = 0;
        for (std::int64_t k = 0; k < kDepth; ++k) {
          const double product = static_cast<double>(x.data_as<float>()[r * kDepth + k]) *
                                 weights.data_as<float>()[k * kColumns + c];
          want += product;
          size += std::abs(product);
        }
        const double error = std::abs(y.data_as<float>()[r * kColumns + c] - want) / size;
        ASSERT_LE(error, 0x1p-9 + 1e-5) << "row " << r << ", column " << c;
        most = std::max(most, error);
      }
    }
    // f32 weights would be off by a thousandth of that.
    EXPECT_GT(most, 0x1p-14);
  }
}

TEST(Bf16Weights, FollowUpdatesOfTheirParameters) {
  const hd::Tensor weights = noise({80, 64}, 4);
  hd::Engine engine([=](const hd::Tensor& x) { return hd::matmul(x, weights); }, rounding());
  const hd::Tensor x = noise({3, 80}, 3);
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
