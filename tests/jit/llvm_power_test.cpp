// Powers and angles, functions of two numbers, against the double functions of the C library.
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using tests::CompiledNest;

struct Pairs {
  std::vector<float> x, y;

  void add(float a, float b) {
    x.push_back(a);
    y.push_back(b);
  }
};

/// Every pair of those that a function treats by itself, floats of random bits, bases near 1 with large exponents, and small
/// integers.
Pairs pairs() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0,
                           1,
                           2,
                           3,
                           0.5f,
                           1.5f,
                           2.5f,
                           1e-3f,
                           100,
                           1e30f,
                           0x1p23f,
                           0x1.fffffep23f,
                           0x1p24f,
                           0x1p25f,
                           0x1.000002p0f,
                           0x1.fffffep-1f,
                           std::numeric_limits<float>::min(),
                           std::numeric_limits<float>::denorm_min(),
                           std::numeric_limits<float>::max(),
                           kInfinity,
                           std::nanf("")};
  Pairs result;
  for (const float a : special)
    for (const float b : special)
      for (const float sign_a : {1.0f, -1.0f})
        for (const float sign_b : {1.0f, -1.0f}) result.add(sign_a * a, sign_b * b);
  std::mt19937 random(7);
  const auto any = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random())); };
  std::uniform_real_distribution<float> near_one(0.9f, 1.1f);
  std::uniform_real_distribution<float> exponent(-40, 40);
  std::uniform_real_distribution<float> large(-5000, 5000);
  std::uniform_int_distribution<int> small(-12, 12);
  for (int k = 0; k < 200'000; ++k) {
    result.add(any(), any());
    result.add(std::abs(any()), exponent(random));
    result.add(near_one(random), large(random));
    result.add(exponent(random), static_cast<float>(small(random)));
  }
  return result;
}

/// In units in the last place of f32 at `exact`; 0 where both are the same zero, NaN or infinity.
double error_of(float got, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (std::isnan(rounded) || std::isnan(got))
    return std::isnan(rounded) && std::isnan(got) ? 0 : 1e30;
  if (got == rounded) return std::signbit(got) == std::signbit(rounded) ? 0 : 1e30;
  const int last_place = std::max(std::ilogb(exact), -126) - 23;
  return std::abs(static_cast<double>(got) - exact) / std::ldexp(1.0, last_place);
}

void expect_within(double bound, ScalarOp op, double (*exact)(double, double),
                   std::int64_t vector_bytes) {
  NestBuilder b("binary");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f32, n);
  const auto y = b.add_global(f32, n);
  const auto out = b.add_global(f32, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  b.store(out, i, b.apply(op, {b.load(x, i), b.load(y, i)}));
  b.end_for();
  Pairs given = pairs();
  std::vector<float> results(given.x.size());
  CompiledNest(b.finish(), vector_bytes)
      .run({given.x.data(), given.y.data(), results.data()},
           {static_cast<std::int64_t>(results.size())});
  for (std::size_t k = 0; k < results.size(); ++k)
    ASSERT_LE(error_of(results[k],
                       exact(static_cast<double>(given.x[k]), static_cast<double>(given.y[k]))),
              bound)
        << name_of(op) << " of " << given.x[k] << " and " << given.y[k] << " gives " << results[k]
        << " in vectors of " << vector_bytes;
}

TEST(LlvmPower, IsRoundedAlmostAsTheExactOne) {
  for (const std::int64_t vector_bytes : {16, 32, 64})
    expect_within(
        vector_bytes == 16 ? 1 : 0.51, ScalarOp::Pow,
        [](double a, double b) { return std::pow(a, b); }, vector_bytes);
}

TEST(LlvmAngle, IsWithinThreeUnits) {
  for (const std::int64_t vector_bytes : {16, 32, 64})
    expect_within(
        3, ScalarOp::Atan2, [](double a, double b) { return std::atan2(a, b); }, vector_bytes);
}

/// x^e for exponents that are products, roots and reciprocals.
TEST(LlvmPower, OfKnownExponents) {
  for (const double e : {-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 2.5, 0.0}) {
    NestBuilder b("power");
    b.nest().size_count = 1;
    const SymExpr n = SymExpr::size(0);
    const auto x = b.add_global(f32, n);
    const auto out = b.add_global(f32, n);
    b.set_parallel(b.new_axis(1), 1);
    const Symbol i = b.new_axis(n);
    b.begin_for(i, n, ForStmt::Kind::Vector);
    b.store(out, i, b.apply(ScalarOp::Pow, {b.load(x, i), b.constant(f32, e)}));
    b.end_for();
    Pairs given = pairs();
    std::vector<float> results(given.x.size());
    CompiledNest(b.finish())
        .run({given.x.data(), results.data()}, {static_cast<std::int64_t>(results.size())});
    for (std::size_t k = 0; k < results.size(); ++k)
      ASSERT_LE(error_of(results[k], std::pow(static_cast<double>(given.x[k]), e)), 1.5)
          << given.x[k] << " to " << e << " gives " << results[k];
  }
}

}  // namespace
}  // namespace heddle::jit
