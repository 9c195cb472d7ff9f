// Operands in bf16, on request: results are off by no more than the rounding of both allows, and are not further where the
// processor does not multiply such pairs.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "jit/compile_service.h"
#include "tests/engine/rounded_products.h"

namespace hd = heddle;

namespace {

using hd::tests::rounded_noise;
using hd::tests::share_of_error;

constexpr std::int64_t kRoundedDepth = 300;
constexpr std::int64_t kRoundedColumns = 200;

hd::EngineOptions rounding_products() {
  hd::EngineOptions options;
  options.passes = {{.name = "bf16-products"}};
  return options;
}

bool rounds() { return hd::jit::CompileService::shared().has_bf16_dot(); }

TEST(Bf16Products, AreOffByTheRoundingOfBothOperands) {
  const hd::Tensor weights = rounded_noise({kRoundedDepth, kRoundedColumns}, 1);
  hd::Engine engine([=](const hd::Tensor& x) { return hd::matmul(x, weights); },
                    rounding_products());
  double most = 0;
  for (const std::int64_t rows : {1, 7, 40}) {
    const hd::Tensor x = rounded_noise({rows, kRoundedDepth}, 2);
    const hd::Tensor y = engine.run({x})[0];
    ASSERT_EQ(y.dtype(), hd::f32);
    most = std::max(most, share_of_error(x, weights, y));
  }
  EXPECT_LE(most, 0x1p-8 + 0x1p-18 + 1e-5);
  // Where nothing rounds, errors are those of f32.
  EXPECT_EQ(most > 0x1p-13, rounds()) << most;
}

TEST(Bf16Products, FollowUpdatesOfTheirParameters) {
  const hd::Tensor weights = rounded_noise({80, 64}, 4);
  hd::Engine engine([=](const hd::Tensor& x) { return hd::matmul(x, weights); },
                    rounding_products());
  const hd::Tensor x = hd::Tensor::full(hd::f32, {3, 80}, 0.5);
  engine.run({x});
  const std::string name = engine.parameters().at(0).name;
  for (const float value : {0.5f, 1.0f + 0x1p-9f, 3.0f}) {
    engine.update_parameters({{name, hd::Tensor::full(hd::f32, {80, 64}, value)}});
    const hd::Tensor y = engine.run({x})[0];
    // 1 + 2^-9 lies between 1 and 1 + 2^-7, nearer to 1.
    const double used = rounds() && value == 1.0f + 0x1p-9f ? 1 : static_cast<double>(value);
    EXPECT_EQ(y.data_as<float>()[0], static_cast<float>(used * 40)) << value;
  }
}

/// Numbers that bf16 holds, through the states of a recurrent layer.
TEST(Bf16Products, InTheBodyOfALoop) {
  hd::Tensor weights = hd::Tensor::full(hd::f32, {70, 70}, 0);
  for (int k = 0; k < 70; ++k) weights.data_as<float>()[k * 70 + (k * 3 + 1) % 70] = 2;
  hd::Engine engine(
      [=](const hd::Tensor& start, const hd::Tensor& xs) {
        return hd::scan(start, xs,
                        [&](const hd::Tensor& carry, const hd::Tensor& x) {
                          const hd::Tensor next = hd::matmul(carry, weights) + x;
                          return std::pair(next, next);
                        })
            .second;
      },
      rounding_products());
  hd::Tensor start = hd::Tensor::full(hd::f32, {2, 70}, 0);
  for (int k = 0; k < 140; ++k) start.data_as<float>()[k] = static_cast<float>(k);
  const hd::Tensor y = engine.run({start, hd::Tensor::full(hd::f32, {3, 2, 70}, 1)})[0];
  std::vector<float> state(start.data_as<float>(), start.data_as<float>() + 140);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> next(140);
    for (int k = 0; k < 140; ++k)
      next[static_cast<std::size_t>(k / 70 * 70 + (k % 70 * 3 + 1) % 70)] =
          2 * state[static_cast<std::size_t>(k)] + 1;
    state = next;
    for (int k = 0; k < 140; ++k)
      ASSERT_EQ(y.data_as<float>()[step * 140 + k], state[static_cast<std::size_t>(k)]);
  }
}

/// The engine's own kernels are for the machine that it runs on: the plan says which they are.
TEST(Bf16Products, AreKernelsOfPairsWhereTheProcessorHasThem) {
  const hd::Tensor weights = rounded_noise({kRoundedDepth, kRoundedColumns}, 1);
  hd::Engine engine([=](const hd::Tensor& x) { return hd::matmul(x, weights); },
                    rounding_products());
  const std::vector<hd::Tensor> inputs{rounded_noise({4, kRoundedDepth}, 2)};
  const std::string plan = engine.plan_json(inputs);
  EXPECT_EQ(plan.find("packed_bf16_matmul") != std::string::npos, rounds()) << plan;
}

/// Convolutions are, where the processor multiplies matrices of them.
TEST(Bf16Products, OfConvolutions) {
  const hd::Tensor weights = rounded_noise({64, 32, 3, 3}, 5);
  const auto conv = [=](const hd::Tensor& x) {
    return hd::conv(x, weights, hd::Tensor(), {1, 1}, {1, 1}, {1, 1});
  };
  hd::Engine engine(conv, rounding_products());
  const std::vector<hd::Tensor> inputs{rounded_noise({1, 32, 12, 14}, 6)};
  const hd::Tensor y = engine.run(inputs)[0];
  const hd::Tensor exact = hd::Engine(conv).run(inputs)[0];
  double most = 0;
  double error = 0;
  for (std::int64_t k = 0; k < y.count(); ++k) {
    most = std::max(most, std::abs(static_cast<double>(exact.data_as<float>()[k])));
    error = std::max(error, std::abs(static_cast<double>(y.data_as<float>()[k]) -
                                     static_cast<double>(exact.data_as<float>()[k])));
  }
  EXPECT_LE(error / most, 0x1p-7);
  const bool has_amx = hd::jit::CompileService::shared().has_amx();
  EXPECT_EQ(error / most > 0x1p-13, has_amx) << error / most;
  EXPECT_EQ(engine.plan_json(inputs).find("packed_bf16_conv") != std::string::npos, has_amx);
}

}  // namespace
