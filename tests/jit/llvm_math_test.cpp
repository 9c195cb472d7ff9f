// Accuracy of vector math over all of f32, against the double functions of the C library.
#include <bit>
#include <cfenv>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <vector>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"
#include "tests/support/nightly.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using tests::CompiledNest;

struct Function {
  ScalarOp op;
  double (*exact)(double);
  double bound;  ///< in units in the last place
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const Function kFunctions[] = {
    {ScalarOp::Exp, [](double x) { return std::exp(x); }, 1.5},
    {ScalarOp::Exp2, [](double x) { return std::exp2(x); }, 1.5},
    {ScalarOp::Expm1, [](double x) { return std::expm1(x); }, 2},
    {ScalarOp::Log, [](double x) { return std::log(x); }, 1.5},
    {ScalarOp::Log2, [](double x) { return std::log2(x); }, 2},
    {ScalarOp::Log1p, [](double x) { return std::log1p(x); }, 2},
    {ScalarOp::Sin, [](double x) { return std::sin(x); }, 2},
    {ScalarOp::Cos, [](double x) { return std::cos(x); }, 2},
    {ScalarOp::Tan, [](double x) { return std::tan(x); }, 4},
    {ScalarOp::Asin, [](double x) { return std::asin(x); }, 2},
    {ScalarOp::Acos, [](double x) { return std::acos(x); }, 2},
    {ScalarOp::Atan, [](double x) { return std::atan(x); }, 2},
    {ScalarOp::Sinh, [](double x) { return std::sinh(x); }, 2.3},
    {ScalarOp::Cosh, [](double x) { return std::cosh(x); }, 1.6},
    {ScalarOp::Asinh, [](double x) { return std::asinh(x); }, 2.4},
    {ScalarOp::Acosh, [](double x) { return std::acosh(x); }, 2.7},
    {ScalarOp::Atanh, [](double x) { return std::atanh(x); }, 2.4},
    {ScalarOp::Tanh, [](double x) { return std::tanh(x); }, 2.6},
    {ScalarOp::Erf, [](double x) { return std::erf(x); }, 2.3},
    {ScalarOp::Sigmoid, sigmoid, 3.1},
    {ScalarOp::Rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1.5},
    {ScalarOp::Sqrt, [](double x) { return std::sqrt(x); }, 0.51},
    {ScalarOp::Reciprocal, [](double x) { return 1 / x; }, 0.51},
};

/// |got - exact| in units in the last place of f32 at `exact`; 0 where both are the same NaN or
/// infinity.
double error_in_ulps(float got, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (std::isnan(rounded)) return std::isnan(got) ? 0 : 1e30;
  if (got == rounded) return std::signbit(got) == std::signbit(rounded) ? 0 : 1e30;
  if (std::isnan(got)) return 1e30;
  // An infinity counts as the next float after the largest.
  const double limit = 0x1p128;
  const double value = std::isinf(got) ? std::copysign(limit, got) : static_cast<double>(got);
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::abs(value - std::clamp(exact, -limit, limit)) / std::ldexp(1.0, exponent - 23);
}

/// op(x) of an x that the compiler knows.
float of_constant(ScalarOp op, float x, std::int64_t vector_bytes) {
  NestBuilder b("constant");
  const auto y = b.add_global(f32, 5);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.begin_for(5, ForStmt::Kind::Vector);
  b.store(y, i, b.apply(op, {b.constant(f32, x)}));
  b.end_for();
  float result[5] = {};
  CompiledNest(b.finish(), vector_bytes).run({result});
  return result[4];
}

TEST(VectorMath, OfConstantsToo) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Function& function : kFunctions)
    for (const float x : {std::nanf(""), inf, -inf, 1e30f, -1e30f, 0.0f, 0.5f})
      for (const std::int64_t vector_bytes : {16, 32, 64})
        EXPECT_LE(error_in_ulps(of_constant(function.op, x, vector_bytes),
                                function.exact(static_cast<double>(x))),
                  function.bound)
            << name_of(function.op) << " of " << x << " in vectors of " << vector_bytes;
}

Nest unary(ScalarOp op) {
  NestBuilder b("unary");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f32, n);
  const auto y = b.add_global(f32, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  b.store(y, i, b.apply(op, {b.load(x, i)}));
  b.end_for();
  return b.finish();
}

CompiledNest compile_unary(ScalarOp op, std::int64_t vector_bytes) {
  return CompiledNest(unary(op), vector_bytes);
}

std::size_t times_in(const std::string& text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++count;
  return count;
}

/// Four vectors and a rest take the same constants, which 16 registers do not hold.
TEST(VectorMath, SpreadsEachConstantOnceWhereRegistersAreShort) {
  const cpu::CodegenTarget target = cpu::host_target(32);
  if (target.vector_bytes < 32) GTEST_SKIP() << "needs fused multiply-add";
  for (const ScalarOp op : {ScalarOp::Exp, ScalarOp::Sigmoid, ScalarOp::Erf}) {
    cpu::CodegenTexts texts;
    texts.want_assembly = true;
    cpu::compile_object(unary(op), target, &texts);
    EXPECT_LE(times_in(texts.assembly, "vbroadcastss"), 20u) << texts.assembly;
    EXPECT_EQ(times_in(texts.assembly, "call"), 0u) << texts.assembly;
    // Roots and coefficients come from tables that registers hold.
    EXPECT_GT(times_in(texts.assembly, "vperm"), 0u) << texts.assembly;
  }
}

/// x / divisor: a constant, or, where there is none, what a third buffer holds.
CompiledNest compile_division(std::optional<double> divisor) {
  NestBuilder b("divide");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f32, n);
  const auto y = b.add_global(f32, n);
  const auto given = b.add_global(f32, 1);
  b.set_parallel(b.new_axis(1), 1);
  const ir::Scalar by = divisor ? b.constant(f32, *divisor) : b.load(given, 0);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  b.store(y, i, b.apply(ScalarOp::Div, {b.load(x, i), by}));
  b.end_for();
  return CompiledNest(b.finish());
}

std::vector<float> all_floats(std::uint32_t step) {
  std::vector<float> values = {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, -0.5f};
  for (float special :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
        std::numeric_limits<float>::denorm_min(), 88.72283f, 88.8f, 103.9f, 9.01f})
    values.insert(values.end(), {special, -special});
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += step)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  return values;
}

constexpr float kDivisors[] = {1.7f,
                               3.0f,
                               -1.4142135f,
                               768.0f,
                               8.0f,
                               -0x1p90f,
                               1e30f,
                               0.3f,
                               0.0f,
                               0x1.fffffep0f,
                               8.0f / 255,
                               -0.25f,
                               1e-20f,
                               1e-36f,
                               3e38f,
                               0x1.8p-140f,
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};

/// Exact, signs of zeros included, but for what is very small or on the edge of infinity.
void expect_divided(float got, float x, float divisor) {
  const float want = x / divisor;
  const bool is_small = std::abs(x) < 0x1p-100f || std::abs(want) < 0x1p-100f;
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got)) << x << " / " << divisor << " gives " << got;
  } else if (want == 0 || std::isinf(x) || (!is_small && std::abs(want) < 0x1p127f)) {
    ASSERT_EQ(got, want) << x << " / " << divisor;
    ASSERT_EQ(std::signbit(got), std::signbit(want)) << x << " / " << divisor;
  } else {
    ASSERT_LE(error_in_ulps(got, static_cast<double>(x) / divisor), 1) << x << " / " << divisor;
  }
}

TEST(LlvmDivision, ByAConstantIsRoundedAsADivisionIs) {
  std::vector<float> x = all_floats(4001);
  std::vector<float> y(x.size());
  for (float divisor : kDivisors) {
    const CompiledNest code = compile_division(divisor);
    code.run({x.data(), y.data(), &divisor}, {static_cast<std::int64_t>(x.size())});
    for (std::size_t k = 0; k < x.size(); ++k)
      ASSERT_NO_FATAL_FAILURE(expect_divided(y[k], x[k], divisor));
  }
}

TEST(LlvmDivision, ByOneNumberForAllLanesIsRoundedAsADivisionIs) {
  std::vector<float> x = all_floats(4001);
  std::vector<float> y(x.size());
  const CompiledNest code = compile_division({});
  for (float divisor : kDivisors) {
    code.run({x.data(), y.data(), &divisor}, {static_cast<std::int64_t>(x.size())});
    for (std::size_t k = 0; k < x.size(); ++k)
      ASSERT_NO_FATAL_FAILURE(expect_divided(y[k], x[k], divisor));
  }
}

struct ByteScale {
  DType dtype;
  float scale;
  int zero;
  bool is_relu = false;  ///< of max(x, 0)
};

/// convert(clamp(round(x / scale) + zero, least, largest)), as QuantizeLinear is written.
Nest quantisation(const ByteScale& to) {
  NestBuilder b("quantise");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f32, n);
  const auto y = b.add_global(to.dtype, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  const double least = to.dtype == u8 ? 0 : -128;
  ir::Scalar from = b.load(x, i);
  if (to.is_relu) from = b.apply(ScalarOp::Max, {from, b.constant(f32, 0)});
  const ir::Scalar ratio = b.apply(ScalarOp::Div, {from, b.constant(f32, to.scale)});
  const ir::Scalar moved =
      b.apply(ScalarOp::Add, {b.apply(ScalarOp::Round, {ratio}), b.constant(f32, to.zero)});
  const ir::Scalar above = b.apply(ScalarOp::Max, {moved, b.constant(f32, least)});
  const ir::Scalar within = b.apply(ScalarOp::Min, {b.constant(f32, least + 255), above});
  b.store(y, i, b.convert(within, to.dtype));
  b.end_for();
  return b.finish();
}

template <typename Byte>
void expect_quantised(const ByteScale& to, std::vector<float> x) {
  // Halves between two integers, and what lies next to them.
  for (int k = -300; k <= 300; ++k) {
    const float half = (static_cast<float>(k) + 0.5f) * to.scale;
    for (const float value : {half, std::nextafter(half, 1e30f), std::nextafter(half, -1e30f)})
      x.push_back(value);
  }
  std::vector<Byte> y(x.size());
  const Nest nest = quantisation(to);
  CompiledNest(nest).run({x.data(), y.data()}, {static_cast<std::int64_t>(x.size())});
  for (std::size_t k = 0; k < x.size(); ++k) {
    const float from = to.is_relu && x[k] < 0 ? 0 : x[k];
    const float steps = std::nearbyint(from / to.scale) + static_cast<float>(to.zero);
    const auto least = static_cast<float>(std::numeric_limits<Byte>::min());
    const auto largest = static_cast<float>(std::numeric_limits<Byte>::max());
    const int want = std::isnan(steps) ? 0 : static_cast<int>(std::clamp(steps, least, largest));
    ASSERT_EQ(static_cast<int>(y[k]), want) << x[k] << " / " << to.scale << " + " << to.zero;
  }
}

TEST(LlvmQuantise, GivesWhatItsPartsDo) {
  const std::vector<float> x = all_floats(4001);
  for (const float scale : {8.0f / 255, 6.0f / 255, 1.0f, 0.25f, 3.7f, 1e-12f, 0x1p59f, 1e-19f}) {
    for (const int zero : {0, 10, 128, 255}) expect_quantised<std::uint8_t>({u8, scale, zero}, x);
    for (const int zero : {0, -128, 127, 5}) expect_quantised<std::int8_t>({i8, scale, zero}, x);
    for (const int zero : {0, 10}) expect_quantised<std::uint8_t>({u8, scale, zero, true}, x);
    for (const int zero : {0, -128}) expect_quantised<std::int8_t>({i8, scale, zero, true}, x);
  }
}

/// Where 0 is the least byte, what is below is bounded once.
TEST(LlvmQuantise, BoundsARelusResultOnce) {
  const cpu::CodegenTarget target = cpu::host_target(0);
  if (target.vector_bytes < 32) GTEST_SKIP() << "needs fused multiply-add";
  const auto maxima = [&](const ByteScale& to) {
    cpu::CodegenTexts texts;
    texts.want_assembly = true;
    cpu::compile_object(quantisation(to), target, &texts);
    return times_in(texts.assembly, "vmaxps");
  };
  EXPECT_EQ(maxima({u8, 0.1f, 0, true}), maxima({u8, 0.1f, 0}));
  EXPECT_EQ(maxima({i8, 0.1f, -128, true}), maxima({i8, 0.1f, -128}));
  EXPECT_GT(maxima({u8, 0.1f, 10, true}), maxima({u8, 0.1f, 10}));
}

TEST(LlvmQuantise, RoundsByAnAddition) {
  const cpu::CodegenTarget target = cpu::host_target(0);
  if (target.vector_bytes < 32) GTEST_SKIP() << "needs fused multiply-add";
  const auto rounds = [&](const ByteScale& to) {
    cpu::CodegenTexts texts;
    texts.want_assembly = true;
    cpu::compile_object(quantisation(to), target, &texts);
    const auto has = [&](const char* name) {
      return texts.assembly.find(name) != std::string::npos;
    };
    return has("vrndscale") || has("vround");
  };
  EXPECT_FALSE(rounds({u8, 8.0f / 255, 128}));
  EXPECT_FALSE(rounds({i8, 8.0f / 255, -3}));
  // A zero point that the byte does not hold is beyond what the bounds are made for.
  EXPECT_TRUE(rounds({i8, 8.0f / 255, 128}));
  EXPECT_TRUE(rounds({u8, 0x1p70f, 0}));
}

/// Limits are reached exactly: 1 + tanh(-inf) times infinity is NaN, as it is by definition.
TEST(LlvmMathLimits, AreExact) {
  const float infinity = std::numeric_limits<float>::infinity();
  const struct {
    ScalarOp op;
    float x;
    float want;
  } cases[] = {
      {ScalarOp::Tanh, infinity, 1},
      {ScalarOp::Tanh, 10, 1},
      {ScalarOp::Tanh, 1e30f, 1},
      {ScalarOp::Tanh, -9.5f, -1},
      {ScalarOp::Erf, infinity, 1},
      {ScalarOp::Erf, 4, 1},
      {ScalarOp::Erf, -5, -1},
      {ScalarOp::Erf, 1e30f, 1},
      {ScalarOp::Sigmoid, infinity, 1},
      {ScalarOp::Sigmoid, 25, 1},
      {ScalarOp::Sigmoid, -infinity, 0},
      {ScalarOp::Sigmoid, 0, 0.5f},
      {ScalarOp::Exp, -infinity, 0},
      {ScalarOp::Exp, 0, 1},
      {ScalarOp::Exp, infinity, infinity},
      {ScalarOp::Log, 1, 0},
      {ScalarOp::Log, 0, -infinity},
      {ScalarOp::Log, infinity, infinity},
      {ScalarOp::Expm1, -infinity, -1},
  };
  for (std::int64_t vector_bytes : {64, 32, 16}) {
    for (const auto& one : cases) {
      const CompiledNest code = compile_unary(one.op, vector_bytes);
      // Alone in a vector, and in several.
      std::vector<float> x(200, one.x);
      std::vector<float> y(x.size());
      code.run({x.data(), y.data()}, {static_cast<std::int64_t>(x.size())});
      for (std::size_t k : {std::size_t{0}, x.size() - 1})
        EXPECT_EQ(y[k], one.want) << ir::name_of(one.op) << " of " << one.x << ", vectors of "
                                  << vector_bytes << " bytes";
    }
  }
}

Nest exponential_up_to_zero() {
  NestBuilder b("up_to_zero");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto in = b.add_global(f32, n);
  const auto out = b.add_global(f32, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  b.store(out, i, b.exp_up_to_zero(b.load(in, i)));
  b.end_for();
  return b.finish();
}

TEST(LlvmMathLimits, ExponentialsUpToZero) {
  const Nest nest = exponential_up_to_zero();
  EXPECT_NE(print(nest).find("exp(%0 up to 0)"), std::string::npos) << print(nest);
  std::vector<float> x{0.0f,
                       -0.0f,
                       -1e-30f,
                       -88,
                       -103.9f,
                       -104,
                       -1e30f,
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const float one : all_floats(6151))
    if (one < 0) x.push_back(one);
  for (std::int64_t vector_bytes : {64, 32, 16}) {
    std::vector<float> y(x.size());
    CompiledNest(nest, vector_bytes)
        .run({x.data(), y.data()}, {static_cast<std::int64_t>(x.size())});
    for (std::size_t k = 0; k < x.size(); ++k) {
      const double want = std::exp(static_cast<double>(x[k]));
      if (y[k] == 0 && want < 0x1p-126) continue;  // may be 0
      ASSERT_LE(error_in_ulps(y[k], want), 1.3) << x[k] << ", " << vector_bytes;
    }
  }
}

/// Weights of attention that are subnormal would slow down what multiplies them, too.
TEST(LlvmMathLimits, ExponentialsUpToZeroAreNeverSubnormal) {
  const Nest nest = exponential_up_to_zero();
  for (const std::int64_t vector_bytes : {64, 32}) {
    for (const float one : {-87.3366f, -88.0f, -100.0f, -103.9f}) {
      std::vector<float> x(200, one), y(200, -1);
      std::feclearexcept(FE_ALL_EXCEPT);
      CompiledNest(nest, vector_bytes)
          .run({x.data(), y.data()}, {static_cast<std::int64_t>(x.size())});
      EXPECT_EQ(std::fetestexcept(FE_UNDERFLOW), 0) << one << ", " << vector_bytes;
      EXPECT_EQ(y, std::vector<float>(200, 0.0f)) << one << ", " << vector_bytes;
    }
  }
}

/// A scaling that underflows is an assist of some hundred nanoseconds: results that are 0 come without one.
TEST(LlvmMathLimits, VanishWithoutUnderflow) {
  for (const std::int64_t vector_bytes : {64, 32, 16}) {
    for (const auto& [op, x] : {std::pair{ScalarOp::Exp, -103.98f},
                                {ScalarOp::Exp, -1e30f},
                                {ScalarOp::Sigmoid, -103.98f},
                                {ScalarOp::Sigmoid, -1e30f},
                                {ScalarOp::Exp2, -150.01f},
                                {ScalarOp::Exp2, -1e30f}}) {
      const CompiledNest code = compile_unary(op, vector_bytes);
      std::vector<float> given(200, x);
      given[100] = 0;
      std::vector<float> y(given.size(), -1);
      std::feclearexcept(FE_ALL_EXCEPT);
      code.run({given.data(), y.data()}, {static_cast<std::int64_t>(given.size())});
      const bool underflows = std::fetestexcept(FE_UNDERFLOW) != 0;
      EXPECT_FALSE(underflows) << ir::name_of(op) << " of " << x << ", " << vector_bytes;
      const float of_zero = op == ScalarOp::Sigmoid ? 0.5f : 1;
      for (std::size_t k = 0; k < y.size(); ++k) ASSERT_EQ(y[k], k == 100 ? of_zero : 0);
    }
    // The least result that is not 0, and the greatest below half of it.
    const CompiledNest code = compile_unary(ScalarOp::Exp2, vector_bytes);
    std::vector<float> given{-149, -150.5f};
    std::vector<float> y(2, -1);
    code.run({given.data(), y.data()}, {2});
    EXPECT_EQ(y[0], std::numeric_limits<float>::denorm_min());
    EXPECT_EQ(y[1], 0);
  }
}

class LlvmMath : public ::testing::TestWithParam<Function> {};

TEST_P(LlvmMath, StaysWithinItsBoundOverAllFloats) {
  const Function& function = GetParam();
  const std::vector<float> x = all_floats(test::is_nightly() ? 53 : 1601);
  std::vector<float> y(x.size());
  for (std::int64_t vector_bytes : {64, 32}) {
    const CompiledNest code = compile_unary(function.op, vector_bytes);
    code.run({const_cast<float*>(x.data()), y.data()}, {static_cast<std::int64_t>(x.size())});
    double worst = 0;
    float where = 0;
    float got = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const double error = error_in_ulps(y[k], function.exact(x[k]));
      if (error > worst) {
        worst = error;
        where = x[k];
        got = y[k];
      }
    }
    RecordProperty("ulps", std::to_string(worst));
    EXPECT_LE(worst, function.bound) << ir::name_of(function.op) << " of " << where << " gives "
                                     << got << ", not " << function.exact(where);
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, LlvmMath, ::testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(ir::name_of(info.param.op)); });

}  // namespace
}  // namespace heddle::jit
