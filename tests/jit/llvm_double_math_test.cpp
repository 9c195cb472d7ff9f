// Accuracy of the vector math of f64 against the functions of the C library on x87's long doubles, which have eleven bits more.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using tests::CompiledNest;

using Wide = long double;
static_assert(std::numeric_limits<Wide>::digits >= 64, "the references need them");

struct DoubleFunction {
  ScalarOp op;
  Wide (*exact)(Wide);
  Wide bound;  ///< in units in the last place
};

const DoubleFunction kDoubleFunctions[] = {
    {ScalarOp::Exp, [](Wide x) { return std::exp(x); }, 1.1L},
    {ScalarOp::Exp2, [](Wide x) { return std::exp2(x); }, 1.1L},
    {ScalarOp::Expm1, [](Wide x) { return std::expm1(x); }, 1.8L},
    {ScalarOp::Log, [](Wide x) { return std::log(x); }, 1.0L},
    {ScalarOp::Log2, [](Wide x) { return std::log2(x); }, 1.5L},
    {ScalarOp::Log1p, [](Wide x) { return std::log1p(x); }, 1.5L},
    {ScalarOp::Tanh, [](Wide x) { return std::tanh(x); }, 2.5L},
    {ScalarOp::Sigmoid, [](Wide x) { return 1 / (1 + std::exp(-x)); }, 2.5L},
    {ScalarOp::Erf, [](Wide x) { return std::erf(x); }, 1.5L},
    {ScalarOp::Sin, [](Wide x) { return std::sin(x); }, 1.5L},
    {ScalarOp::Cos, [](Wide x) { return std::cos(x); }, 1.5L},
    {ScalarOp::Tan, [](Wide x) { return std::tan(x); }, 3.1L},
    {ScalarOp::Asin, [](Wide x) { return std::asin(x); }, 2},
    {ScalarOp::Acos, [](Wide x) { return std::acos(x); }, 2},
    {ScalarOp::Atan, [](Wide x) { return std::atan(x); }, 2},
    {ScalarOp::Sinh, [](Wide x) { return std::sinh(x); }, 2.3L},
    {ScalarOp::Cosh, [](Wide x) { return std::cosh(x); }, 1.5L},
    {ScalarOp::Asinh, [](Wide x) { return std::asinh(x); }, 1.6L},
    {ScalarOp::Acosh, [](Wide x) { return std::acosh(x); }, 2.3L},
    {ScalarOp::Atanh, [](Wide x) { return std::atanh(x); }, 1.6L},
};

/// |got - exact| in units in the last place of f64 at `exact`; 0 where both round to one value, the sign of zeros included.
Wide error_in_ulps(double got, Wide exact) {
  constexpr Wide kWrong = 1e30L;
  const auto rounded = static_cast<double>(exact);
  if (std::isnan(rounded)) return std::isnan(got) ? 0 : kWrong;
  if (std::isnan(got)) return kWrong;
  if (std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(rounded))
    return std::isinf(rounded)
               ? 0
               : std::abs(got - exact) /
                     std::ldexp(1.0L, std::max(std::ilogb(exact == 0 ? 1 : exact), -1022) - 52);
  if (got == 0 && rounded == 0) return kWrong;
  // An infinity counts as the next double after the largest.
  const Wide limit = 0x1p1024L;
  const Wide value = std::isinf(got) ? std::copysign(limit, got) : static_cast<Wide>(got);
  const int exponent = std::max(std::ilogb(exact), -1022);
  return std::abs(value - std::clamp(exact, -limit, limit)) / std::ldexp(1.0L, exponent - 52);
}

/// @param more  is added, unless it is 0
CompiledNest compile_double(ScalarOp op, std::int64_t vector_bytes,
                            ForStmt::Kind kind = ForStmt::Kind::Vector, double more = 0) {
  NestBuilder b("unary");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f64, n);
  const auto y = b.add_global(f64, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, kind);
  const Scalar result = b.apply(op, {b.load(x, i)});
  b.store(y, i, more == 0 ? result : b.apply(ScalarOp::Add, {result, b.constant(f64, more)}));
  b.end_for();
  return CompiledNest(b.finish(), vector_bytes);
}

std::vector<double> run_double(const CompiledNest& code, const std::vector<double>& x) {
  std::vector<double> y(x.size());
  code.run({const_cast<double*>(x.data()), y.data()}, {static_cast<std::int64_t>(x.size())});
  return y;
}

/// Every exponent with both signs, what the functions branch and overflow at with what lies next to it, and dense rows
/// where values are common.
std::vector<double> sampled_doubles() {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0, inf, std::numeric_limits<double>::quiet_NaN()};
  for (double edge : {std::numeric_limits<double>::max(),
                      std::numeric_limits<double>::min(),
                      std::numeric_limits<double>::denorm_min(),
                      0x1p-1022,
                      0x1p-60,
                      0x1p-54,
                      0x1p-53,
                      0x1p-52,
                      0.5,
                      1.0,
                      2.0,
                      6.0,
                      22.0,
                      36.7,
                      40.0,
                      0x1p30,
                      0x1p60,
                      0x1p52,
                      0x1p53,
                      709.782712893384,
                      710.0,
                      710.4758600739439,
                      710.6,
                      711.0,
                      745.1332191019411,
                      745.1332191019412,
                      745.14,
                      746.0,
                      708.3964185322641,
                      1021.0,
                      1022.0,
                      1022.5,
                      1023.0,
                      1023.5,
                      1024.0,
                      1074.0,
                      1074.5,
                      1075.0,
                      1076.0,
                      0.7071067811865476,
                      1.4142135623730951,
                      0.34657359027997264,
                      1.5707963267948966,
                      3.141592653589793,
                      0x1.921fb54442d18p20,
                      0.41421356237309503,
                      1e300})
    for (int step = -3; step <= 3; ++step)
      values.push_back(std::bit_cast<double>(std::bit_cast<std::int64_t>(edge) + step));
  // Steps of odd counts of units, so that mantissas differ.
  for (std::uint64_t bits = 0; bits < std::uint64_t{0x7ff} << 52;
       bits += (std::uint64_t{1} << 46) - 12345677)
    values.push_back(std::bit_cast<double>(bits));
  for (double x = 0; x < 8; x += 0x1.0123456789p-14) values.push_back(x);
  for (double x = 8; x < 800; x += 0x1.0123456789p-6) values.push_back(x);
  for (double x = -0.05; x < 0.05; x += 0x1.0123456789p-19) values.push_back(1 + x);
  const std::size_t count = values.size();
  for (std::size_t k = 0; k < count; ++k) values.push_back(-values[k]);
  return values;
}

class LlvmDoubleMath : public ::testing::TestWithParam<DoubleFunction> {};

TEST_P(LlvmDoubleMath, StaysWithinItsBound) {
  const DoubleFunction& function = GetParam();
  const std::vector<double> x = sampled_doubles();
  std::vector<Wide> exact;
  for (double value : x) exact.push_back(function.exact(value));
  for (std::int64_t vector_bytes : {64, 32}) {
    const std::vector<double> y = run_double(compile_double(function.op, vector_bytes), x);
    Wide worst = 0;
    std::size_t where = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const Wide error = error_in_ulps(y[k], exact[k]);
      if (error > worst) worst = error, where = k;
    }
    RecordProperty("ulps", std::to_string(worst));
    EXPECT_LE(worst, function.bound)
        << ir::name_of(function.op) << " of " << std::hexfloat << x[where] << " gives " << y[where]
        << ", not " << exact[where];
  }
}

CompiledNest compile_pairs(ScalarOp op, std::int64_t vector_bytes = 0,
                           ForStmt::Kind kind = ForStmt::Kind::Vector) {
  NestBuilder b("binary");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f64, n);
  const auto y = b.add_global(f64, n);
  const auto out = b.add_global(f64, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.begin_for(n, kind);
  b.store(out, i, b.apply(op, {b.load(x, i), b.load(y, i)}));
  b.end_for();
  return CompiledNest(b.finish(), vector_bytes);
}

/// @param x, y  equally many
std::vector<double> run_pairs(const CompiledNest& code, const std::vector<double>& x,
                              const std::vector<double>& y) {
  std::vector<double> out(x.size());
  code.run({const_cast<double*>(x.data()), const_cast<double*>(y.data()), out.data()},
           {static_cast<std::int64_t>(x.size())});
  return out;
}

TEST(LlvmDoubleAtan2, StaysWithinItsBound) {
  const CompiledNest code = compile_pairs(ScalarOp::Atan2);
  std::vector<double> few;
  const std::vector<double> all = sampled_doubles();
  for (std::size_t k = 0; k < all.size(); k += k < 100 || k % 997 == 0 ? 1 : 996)
    few.push_back(all[k]);
  for (double special : {0.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) few.push_back(special);
  for (double height : few) {
    const std::vector<double> got = run_pairs(code, std::vector<double>(few.size(), height), few);
    for (std::size_t k = 0; k < few.size(); ++k)
      ASSERT_LE(error_in_ulps(got[k], std::atan2(Wide{height}, Wide{few[k]})), 2)
          << std::hexfloat << height << " and " << few[k] << " give " << got[k];
  }
}

/// Bases and exponents: every pair of those that a power treats by itself, any bits, powers that overflow and vanish, bases
/// near 1 with large exponents, and small integers.
std::pair<std::vector<double>, std::vector<double>> sampled_powers() {
  std::vector<double> special = {0,
                                 1,
                                 2,
                                 3,
                                 0.5,
                                 1.5,
                                 2.5,
                                 1e-3,
                                 100,
                                 1e300,
                                 0x1p52,
                                 0x1.fffffffffffffp52,
                                 0x1p53,
                                 0x1p54,
                                 0x1p-1074,
                                 0x1p-1022,
                                 HUGE_VAL,
                                 0x1.0000000000001p0,
                                 1075,
                                 0x1.fffffffffffffp-1,
                                 0x1.fffffffffffffp1023,
                                 std::nan("")};
  for (std::size_t k = special.size(); k-- > 0;) special.push_back(-special[k]);
  std::pair<std::vector<double>, std::vector<double>> pairs;
  const auto add = [&](double x, double y) {
    pairs.first.push_back(x);
    pairs.second.push_back(y);
  };
  for (const double x : special)
    for (const double y : special) add(x, y);
  std::mt19937_64 random(7);
  const auto any = [&] { return std::bit_cast<double>(random()); };
  std::uniform_real_distribution<double> near_one(0.9, 1.1);
  std::uniform_real_distribution<double> exponent(-40, 40);
  std::uniform_real_distribution<double> result(-1080, 1030);
  std::uniform_int_distribution<int> small(-12, 12);
  for (int k = 0; k < 200'000; ++k) {
    add(any(), any());
    const double base = std::abs(any());
    add(base, result(random) / std::log2(base));
    add(near_one(random), 150 * exponent(random));
    add(exponent(random), small(random));
    add(1 + std::ldexp(exponent(random), -k % 50), exponent(random));
  }
  return pairs;
}

TEST(LlvmDoublePower, StaysWithinItsBound) {
  const auto [x, y] = sampled_powers();
  std::vector<Wide> exact;
  for (std::size_t k = 0; k < x.size(); ++k) exact.push_back(std::pow(Wide{x[k]}, Wide{y[k]}));
  for (std::int64_t vector_bytes : {64, 32}) {
    const std::vector<double> got = run_pairs(compile_pairs(ScalarOp::Pow, vector_bytes), x, y);
    Wide worst = 0;
    std::size_t where = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const Wide error = error_in_ulps(got[k], exact[k]);
      if (error > worst) worst = error, where = k;
    }
    RecordProperty("ulps", std::to_string(worst));
    EXPECT_LE(worst, 0.8L) << std::hexfloat << x[where] << " to " << y[where] << " gives "
                           << got[where] << ", not " << exact[where];
  }
}

TEST(LlvmDoublePower, EveryWidthGivesTheSameBits) {
  if (cpu::host_target(0).vector_bytes < 32) GTEST_SKIP() << "needs fused multiply-add";
  const auto [x, y] = sampled_powers();
  const std::vector<double> want =
      run_pairs(compile_pairs(ScalarOp::Pow, 32, ForStmt::Kind::Serial), x, y);
  for (std::int64_t vector_bytes : {64, 32}) {
    const std::vector<double> got = run_pairs(compile_pairs(ScalarOp::Pow, vector_bytes), x, y);
    for (std::size_t k = 0; k < x.size(); ++k)
      ASSERT_TRUE(std::memcmp(&got[k], &want[k], sizeof(double)) == 0 || std::isnan(want[k]))
          << std::hexfloat << x[k] << " to " << y[k] << ": " << got[k] << " and " << want[k];
  }
}

/// Vectors of any width, tails and single numbers give the same bits, but the library's where there are no multiply-add units.
TEST_P(LlvmDoubleMath, EveryWidthGivesTheSameBits) {
  if (cpu::host_target(0).vector_bytes < 32) GTEST_SKIP() << "needs fused multiply-add";
  std::vector<double> x = sampled_doubles();
  std::vector<double> few;
  for (std::size_t k = 0; k < x.size(); k += 17) few.push_back(x[k]);
  const ScalarOp op = GetParam().op;
  const std::vector<double> want = run_double(compile_double(op, 32, ForStmt::Kind::Serial), few);
  for (std::int64_t vector_bytes : {64, 32}) {
    const CompiledNest code = compile_double(op, vector_bytes);
    for (std::size_t count : {few.size(), std::size_t{61}, std::size_t{5}}) {
      const std::vector<double> given(few.begin(),
                                      few.begin() + static_cast<std::ptrdiff_t>(count));
      const std::vector<double> got = run_double(code, given);
      for (std::size_t k = 0; k < count; ++k)
        ASSERT_TRUE(std::memcmp(&got[k], &want[k], sizeof(double)) == 0 || std::isnan(want[k]))
            << ir::name_of(op) << " of " << std::hexfloat << few[k] << ": " << got[k] << " and "
            << want[k] << ", vectors of " << vector_bytes << ", of " << count;
    }
  }
}

/// Where the result overflows or is subnormal, a multiply-add of its last product and what follows would round once less.
TEST(LlvmDoubleExp, ASumBehindItGivesTheSameBits) {
  if (cpu::host_target(0).vector_bytes < 32) GTEST_SKIP() << "needs fused multiply-add";
  const std::vector<double> x = {709.5, 709.9, 710, -709.3, -720.1, -740.7, 1.5, 0.3};
  for (double more : {-1e308, 0x1p-1074, 0x1.8p-1030}) {
    const auto at = [&](std::int64_t vector_bytes, ForStmt::Kind kind) {
      return run_double(compile_double(ScalarOp::Exp, vector_bytes, kind, more), x);
    };
    const std::vector<double> want = at(32, ForStmt::Kind::Serial);
    EXPECT_EQ(at(32, ForStmt::Kind::Vector), want) << more;
    EXPECT_EQ(at(64, ForStmt::Kind::Vector), want) << more;
    EXPECT_EQ(at(64, ForStmt::Kind::Serial), want) << more;
  }
  EXPECT_EQ(run_double(compile_double(ScalarOp::Exp, 32, ForStmt::Kind::Serial, -1e308), x)[1],
            HUGE_VAL);
}

/// No call of the runtime table is left in a kernel.
void expect_no_library(ScalarOp op, std::size_t operands) {
  const cpu::CodegenTarget target = cpu::host_target(0);
  if (target.vector_bytes < 32) GTEST_SKIP() << "needs fused multiply-add";
  NestBuilder b("function");
  const auto x = b.add_global(f64, 100);
  const auto y = b.add_global(f64, 100);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.begin_for(100, ForStmt::Kind::Vector);
  b.store(y, i, b.apply(op, std::vector<Scalar>(operands, b.load(x, i))));
  b.end_for();
  cpu::CodegenTexts texts;
  cpu::compile_object(b.finish(), target, &texts);
  EXPECT_EQ(texts.ir.find("@heddle_f64_"), std::string::npos) << texts.ir;
}

TEST_P(LlvmDoubleMath, CallsNoLibraryForEachElement) {
  const ScalarOp op = GetParam().op;
  if (op == ScalarOp::Sin || op == ScalarOp::Cos || op == ScalarOp::Tan)
    GTEST_SKIP() << "what lies beyond 2^30 is the library's";
  expect_no_library(op, 1);
}

TEST(LlvmDoublePower, CallsNoLibraryForEachElement) { expect_no_library(ScalarOp::Pow, 2); }

INSTANTIATE_TEST_SUITE_P(Functions, LlvmDoubleMath, ::testing::ValuesIn(kDoubleFunctions),
                         [](const auto& info) { return std::string(ir::name_of(info.param.op)); });

}  // namespace
}  // namespace heddle::jit
