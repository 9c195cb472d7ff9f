#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

double at(std::string_view op, double x, ir::Attrs attrs = {}) {
  return value_of({op, {doubles(f64, {1}, {x})}, std::move(attrs)}).at(0);
}

TEST(Relu, KeepsWhatIsPositiveAndNan) {
  expect_same(value_of({"relu", {doubles(f32, {4}, {-1.0, 0.0, 2.0, kNan})}}),
              doubles(f32, {4}, {0.0, 0.0, 2.0, kNan}));
  expect_same(value_of({"relu", {ints(i8, {2}, {-128, 5})}}), ints(i8, {2}, {0, 5}));
}

TEST(Relu, C1RefusesBool) {
  EXPECT_EQ(error_of("relu", {meta(boolean, {2})}),
            "relu: C1 dtype: expected a number dtype, got bool");
}

TEST(Gelu, HasItsTwoForms) {
  EXPECT_NEAR(at("gelu", 1.0), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(at("gelu", -1.0), -0.15865525393145707, 1e-15);
  EXPECT_NEAR(at("gelu", 1.0, {{"approximate", std::string("tanh")}}), 0.8411919906082768, 1e-12);
  EXPECT_TRUE(std::isnan(at("gelu", kNan)));
}

TEST(Gelu, C1RefusesIntegers) {
  EXPECT_EQ(error_of("gelu", {meta(i32, {2})}),
            "gelu: C1 dtype: expected a floating dtype, got i32");
}

TEST(Gelu, C2RefusesAnotherForm) {
  EXPECT_EQ(error_of("gelu", {meta(f32, {2})}, {{"approximate", std::string("fast")}}),
            "gelu: C2 approximate: expected \"none\" or \"tanh\", got \"fast\"");
}

TEST(Silu, IsXTimesSigmoid) {
  EXPECT_NEAR(at("silu", 1.0), 0.7310585786300049, 1e-15);
  EXPECT_EQ(at("silu", 0.0), 0.0);
  EXPECT_EQ(error_of("silu", {meta(i32, {2})}),
            "silu: C1 dtype: expected a floating dtype, got i32");
}

TEST(Softplus, NeitherOverflowsNorVanishes) {
  EXPECT_NEAR(at("softplus", 0.0), std::log(2.0), 1e-15);
  EXPECT_EQ(at("softplus", 1000.0), 1000.0);
  EXPECT_NEAR(at("softplus", -50.0) / std::exp(-50.0), 1.0, 1e-12);
  EXPECT_EQ(at("softplus", kInf), kInf);
  EXPECT_EQ(at("softplus", -kInf), 0.0);
  EXPECT_TRUE(std::isnan(at("softplus", kNan)));
  EXPECT_EQ(error_of("softplus", {meta(boolean, {2})}),
            "softplus: C1 dtype: expected a floating dtype, got bool");
}

TEST(Clamp, TakesEitherBoundOrBothOrNone) {
  const Literal x = doubles(f32, {4}, {-2.0, 0.5, 3.0, kNan});
  const Literal low = doubles(f32, {}, {0.0});
  const Literal high = doubles(f32, {}, {1.0});
  const Literal none;
  expect_same(value_of({"clamp", {x, low, high}}), doubles(f32, {4}, {0.0, 0.5, 1.0, kNan}));
  expect_same(value_of({"clamp", {x, low, none}}), doubles(f32, {4}, {0.0, 0.5, 3.0, kNan}));
  expect_same(value_of({"clamp", {x, none, high}}), doubles(f32, {4}, {-2.0, 0.5, 1.0, kNan}));
  expect_same(value_of({"clamp", {x, none, none}}), x);
}

TEST(Clamp, HighWinsOverLowAndBoundsBroadcast) {
  const Literal x = ints(i32, {2, 1}, {0, 9});
  const Literal low = ints(i32, {}, {5});
  const Literal high = ints(i32, {3}, {3, 6, 9});
  expect_same(value_of({"clamp", {x, low, high}}), ints(i32, {2, 3}, {3, 5, 5, 3, 6, 9}));
}

TEST(Clamp, C1RefusesSizesThatDoNotBroadcast) {
  EXPECT_EQ(
      error_of("clamp", {meta(f32, {2}), meta(f32, {3}), meta(f32, {})}),
      "clamp: C1 sizes broadcast: expected sizes that are equal or 1, got 2 and 3 in dimension 0");
}

TEST(Clamp, C2RefusesBool) {
  EXPECT_EQ(error_of("clamp", {meta(boolean, {2}), meta(boolean, {}), meta(boolean, {})}),
            "clamp: C2 dtype: expected a number dtype, got bool");
}

}  // namespace
}  // namespace heddle::testing
