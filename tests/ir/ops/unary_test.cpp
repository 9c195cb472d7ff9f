#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "ir/op.h"
#include "ir/ops/families.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;

/// Value of a unary op at one f64 number.
double at(std::string_view op, double x) { return value_of({op, {doubles(f64, {1}, {x})}}).at(0); }

std::int64_t at_int(std::string_view op, DType dtype, std::int64_t x) {
  return value_of({op, {ints(dtype, {1}, {x})}}).at_int(0);
}

struct Row {
  std::string_view op;
  double x;
  double want;
};

TEST(Unary, HasTheValuesOfItsFunction) {
  const Row rows[] = {
      {"neg", 1.5, -1.5},
      {"abs", -2.5, 2.5},
      {"sign", -3.0, -1.0},
      {"sign", 0.0, 0.0},
      {"sign", 0.25, 1.0},
      {"ceil", 1.2, 2.0},
      {"ceil", -1.2, -1.0},
      {"floor", 1.8, 1.0},
      {"floor", -1.2, -2.0},
      {"trunc", -1.8, -1.0},
      {"sqrt", 9.0, 3.0},
      {"rsqrt", 4.0, 0.5},
      {"reciprocal", 8.0, 0.125},
      {"exp", 1.0, std::exp(1.0)},
      {"exp2", 3.0, 8.0},
      {"expm1", 1e-10, 1e-10},
      {"log", std::exp(2.0), 2.0},
      {"log2", 8.0, 3.0},
      {"log1p", 1e-10, 1e-10},
      {"sin", 0.5, std::sin(0.5)},
      {"cos", 0.0, 1.0},
      {"tan", 0.5, std::tan(0.5)},
      {"asin", 1.0, std::asin(1.0)},
      {"acos", 1.0, 0.0},
      {"atan", 1.0, std::atan(1.0)},
      {"sinh", 1.0, std::sinh(1.0)},
      {"cosh", 0.0, 1.0},
      {"asinh", std::sinh(1.0), 1.0},
      {"acosh", std::cosh(1.0), 1.0},
      {"atanh", std::tanh(1.0), 1.0},
      {"tanh", 0.5, std::tanh(0.5)},
      {"erf", 0.5, 0.5204998778130465},
      {"sigmoid", 0.0, 0.5},
      {"sigmoid", 2.0, 0.8807970779778823},
  };
  for (const Row& row : rows) {
    EXPECT_NEAR(at(row.op, row.x), row.want, 1e-12 * std::max(1.0, std::fabs(row.want)))
        << row.op << "(" << row.x << ")";
  }
}

TEST(Unary, RoundGoesToTheNearestEven) {
  const Row rows[] = {{"round", 0.5, 0.0},  {"round", 1.5, 2.0},   {"round", 2.5, 2.0},
                      {"round", -0.5, 0.0}, {"round", -1.5, -2.0}, {"round", 2.4, 2.0}};
  for (const Row& row : rows) EXPECT_EQ(at(row.op, row.x), row.want) << row.x;
}

TEST(Unary, NanPassesThroughEveryFloatingOp) {
  for (const ir::OpDef& op : ir::unary_ops()) {
    if (!ir::defined_on(*op.scalar, f32) || ir::result_of(*op.scalar, f32) != f32) continue;
    EXPECT_TRUE(std::isnan(at(op.name, kNan))) << op.name;
  }
}

TEST(Unary, ClassifiesNanAndInfinity) {
  const Literal x = doubles(f16, {4}, {kNan, kInf, -kInf, 1.0});
  expect_same(value_of({"is_nan", {x}}), ints(boolean, {4}, {1, 0, 0, 0}));
  expect_same(value_of({"is_inf", {x}}), ints(boolean, {4}, {0, 1, 1, 0}));
}

TEST(Unary, IntegersWrap) {
  EXPECT_EQ(at_int("neg", i8, -128), -128);
  EXPECT_EQ(at_int("abs", i8, -128), -128);
  EXPECT_EQ(at_int("neg", u8, 1), 255);
  EXPECT_EQ(at_int("neg", i64, std::numeric_limits<std::int64_t>::min()),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(at_int("abs", i32, -7), 7);
  EXPECT_EQ(at_int("sign", i16, -7), -1);
  EXPECT_EQ(at_int("floor", i32, -7), -7);
}

TEST(Unary, NotIsBitwiseOnIntegersAndLogicalOnBool) {
  EXPECT_EQ(at_int("not", u8, 0x0f), 0xf0);
  EXPECT_EQ(at_int("not", i32, 0), -1);
  expect_same(value_of({"not", {ints(boolean, {2}, {0, 1})}}), ints(boolean, {2}, {1, 0}));
}

TEST(Unary, EveryDTypeEmptyAndScalar) {
  for (const ir::OpDef& op : ir::unary_ops()) {
    for (const DType dtype : kArithmeticDTypes) {
      if (!ir::defined_on(*op.scalar, dtype)) continue;
      const Literal empty = value_of({op.name, {Literal(dtype, {3, 0})}});
      EXPECT_EQ(empty.sizes(), (Sizes{3, 0})) << op.name;
      const Literal scalar = value_of({op.name, {noise(dtype, {})}});
      EXPECT_EQ(scalar.dtype(), ir::result_of(*op.scalar, dtype)) << op.name;
    }
  }
}

TEST(Unary, SizesStaySymbolic) {
  const ir::SymExpr s0 = ir::SymExpr::size(0);
  EXPECT_EQ(type_of("exp", {meta(f32, {s0, 2 * s0})}), "f32[s0, 2*s0]");
  EXPECT_EQ(type_of("is_nan", {meta(f32, {s0})}), "bool[s0]");
}

TEST(Unary, C1RefusesADTypeWithoutTheInstruction) {
  for (const ir::OpDef& op : ir::unary_ops()) {
    for (const DType dtype : kArithmeticDTypes) {
      if (ir::defined_on(*op.scalar, dtype)) continue;
      const std::string name(op.name);
      EXPECT_EQ(error_of(op.name, {meta(dtype, {2})}), name + ": C1 dtype: expected a dtype that " +
                                                           name + " is defined on, got " +
                                                           std::string(name_of(dtype)));
    }
  }
  EXPECT_NE(error_of("exp", {meta(i32, {2})}), "no error");
}

}  // namespace
}  // namespace heddle::testing
