// Philox against its published answers, and the random ops against a second construction of their
// numbers.
#include <cmath>
#include <gtest/gtest.h>

#include "ir/ops/philox.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Dims;
using ir::Literal;
using ir::Sizes;
using ir::ops::philox;
using ir::ops::PhiloxWords;

TEST(Philox, KnownAnswers) {
  // Random123, kat_vectors, philox4x32 with 10 rounds.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

Attrs sized(const Dims& sizes, DType dtype) { return {{"sizes", sizes}, {"dtype", dtype}}; }

Literal key(std::int64_t seed, std::int64_t offset) { return ints(i64, {2}, {seed, offset}); }

Literal uniform(DType dtype, const Dims& sizes, std::int64_t seed = 7, std::int64_t offset = 0) {
  return value_of({"random_uniform", {key(seed, offset)}, sized(sizes, dtype)});
}

Literal normal(DType dtype, const Dims& sizes, std::int64_t seed = 7) {
  return value_of({"random_normal", {key(seed, 0)}, sized(sizes, dtype)});
}

TEST(RandomUniform, FirstNumberIsTheKnownAnswer) {
  const std::uint32_t word = 0x6627e8d5;
  expect_same(uniform(f32, {1}, 0, 0), doubles(f32, {1}, {(word >> 8) / 16777216.0}));
  const double bits = static_cast<double>(0x6627e8d5u >> 5) * 67108864.0 + (0xe169c58du >> 6);
  expect_same(uniform(f64, {1}, 0, 0), doubles(f64, {1}, {bits / 9007199254740992.0}));
}

TEST(RandomUniform, SeedAndCounterAreTakenWhole) {
  const PhiloxWords words = philox({2, 5, 0, 0}, {3, 9});
  const std::int64_t seed = (std::int64_t{9} << 32) + 3;
  const std::int64_t offset = std::int64_t{5} << 32;
  EXPECT_EQ(uniform(f32, {3}, seed, offset).at(2), (words[0] >> 8) / 16777216.0);
  // The counter wraps from -1, all ones, to 0.
  EXPECT_EQ(uniform(f32, {2}, seed, -1).at(1), uniform(f32, {1}, seed, 0).at(0));
}

TEST(Random, DependsOnSeedAndPositionOnly) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal whole = uniform(dtype, {12});
    const Literal folded = uniform(dtype, {3, 4});
    const Literal later = uniform(dtype, {8}, 7, 4);
    for (std::int64_t k = 0; k < 12; ++k) EXPECT_EQ(folded.at(k), whole.at(k));
    for (std::int64_t k = 0; k < 8; ++k) EXPECT_EQ(later.at(k), whole.at(k + 4));
    EXPECT_NE(uniform(dtype, {12}, 8).at(0), whole.at(0));
    expect_same(value_of({"random_uniform", {spread_out(key(7, 0))}, sized({12}, dtype)}), whole);
  }
}

/// The k-th moment about `centre`.
double moment(const Literal& x, double centre, int k) {
  double sum = 0;
  for (std::int64_t p = 0; p < x.count(); ++p) sum += std::pow(x.at(p) - centre, k);
  return sum / static_cast<double>(x.count());
}

TEST(RandomUniform, HasTheMomentsOfItsDistribution) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = uniform(dtype, {20000});
    EXPECT_NEAR(moment(x, 0, 1), 0.5, 0.01);
    EXPECT_NEAR(moment(x, 0.5, 2), 1.0 / 12, 0.002);
    for (std::int64_t p = 0; p < x.count(); ++p) {
      ASSERT_GE(x.at(p), 0);
      ASSERT_LE(x.at(p), 1);
    }
  }
}

TEST(RandomNormal, HasTheMomentsOfItsDistribution) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = normal(dtype, {20000});
    EXPECT_NEAR(moment(x, 0, 1), 0, 0.03);
    EXPECT_NEAR(moment(x, 0, 2), 1, 0.05);
    EXPECT_NEAR(moment(x, 0, 3), 0, 0.1);
    EXPECT_NEAR(moment(x, 0, 4), 3, 0.3);
  }
}

TEST(RandomNormal, IsBoxMullerOfTheWords) {
  const PhiloxWords w = philox({0, 0, 0, 0}, {7, 0});
  const double radius = std::sqrt(-2 * std::log(1 - (w[0] >> 8) / 16777216.0));
  const double turn = (w[1] >> 8) / 16777216.0;
  expect_close(normal(f32, {1}), doubles(f32, {1}, {radius * std::cos(2 * M_PI * turn)}), 1e-7);
}

TEST(Random, RangeMeanAndDeviation) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    Attrs range = sized({50}, dtype);
    range["low"] = -3.0;
    range["high"] = 5.0;
    const Literal u = uniform(f64, {50});
    const Literal x = value_of({"random_uniform", {key(7, 0)}, range});
    if (dtype == f64) {
      for (std::int64_t p = 0; p < 50; ++p) EXPECT_NEAR(x.at(p), 8 * u.at(p) - 3, 1e-14);
    }
    for (std::int64_t p = 0; p < 50; ++p) {
      EXPECT_GE(x.at(p), -3);
      EXPECT_LE(x.at(p), 5);
    }
    Attrs bell = sized({50}, dtype);
    bell["mean"] = 10.0;
    bell["stddev"] = 0.5;
    const Literal y = value_of({"random_normal", {key(7, 0)}, bell});
    const Literal z = normal(dtype, {50});
    for (std::int64_t p = 0; p < 50; ++p) {
      EXPECT_NEAR(y.at(p), 10 + z.at(p) / 2, 16 * tolerance_of(dtype));
    }
  }
}

TEST(Random, EmptyAndScalarResults) {
  for (const DType dtype : kFloats) {
    EXPECT_EQ(uniform(dtype, {0, 3}).sizes(), (Sizes{0, 3}));
    EXPECT_EQ(uniform(dtype, {}).sizes(), Sizes{});
    EXPECT_EQ(normal(dtype, {2, 0}).sizes(), (Sizes{2, 0}));
  }
}

TEST(Random, random_c1) {
  EXPECT_EQ(error_of("random_uniform", {meta(i32, {2})}, sized({1}, f32)),
            "random_uniform: C1 key is i64[2]: expected i64, got i32");
  EXPECT_EQ(error_of("random_uniform", {meta(i64, {})}, sized({1}, f32)),
            "random_uniform: C1 key is i64[2]: expected [2], got []");
  EXPECT_EQ(error_of("random_normal", {meta(i64, {3})}, sized({1}, f32)),
            "random_normal: C1 key is i64[2]: expected 2, got 3");
}

TEST(Random, random_c2) {
  EXPECT_EQ(error_of("random_normal", {meta(i64, {2})}, sized({1}, i32)),
            "random_normal: C2 dtype is floating: expected a floating dtype, got i32");
}

TEST(Random, random_c3) {
  Attrs range = sized({1}, f32);
  range["low"] = 2.0;
  EXPECT_EQ(error_of("random_uniform", {meta(i64, {2})}, range),
            "random_uniform: C3 low is at most high; stddev is at least 0: expected at least "
            "2.000000, got 1.000000");
  Attrs bell = sized({1}, f32);
  bell["stddev"] = -1.0;
  EXPECT_EQ(error_of("random_normal", {meta(i64, {2})}, bell),
            "random_normal: C3 low is at most high; stddev is at least 0: expected at least "
            "0.000000, got -1.000000");
}

TEST(Random, random_c4) {
  EXPECT_EQ(error_of("random_uniform", {meta(i64, {2})}, sized({-1}, f32)),
            "random_uniform: C4 sizes are at least 0: expected 0 or more, got -1");
}

}  // namespace
}  // namespace heddle::testing
