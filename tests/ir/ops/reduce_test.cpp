#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;
using ir::SymExpr;
using Ints = std::vector<std::int64_t>;

const std::string_view kNumeric[] = {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"};

ir::Attrs over(Ints axes, bool keepdims = false) {
  return {{"axes", std::move(axes)}, {"keepdims", keepdims}};
}

TEST(Reduce, CombinesOverAxesInEveryDType) {
  for (const DType dtype : kNumbers) {
    const Literal x = ints(dtype, {2, 3}, {1, 2, 3, 4, 2, 1});
    SCOPED_TRACE(name_of(dtype));
    expect_same(value_of({"reduce_sum", {x}, over({1})}), ints(dtype, {2}, {6, 7}));
    expect_same(value_of({"reduce_prod", {x}, over({0})}), ints(dtype, {3}, {4, 4, 3}));
    expect_same(value_of({"reduce_max", {x}, over({-1}, true)}), ints(dtype, {2, 1}, {3, 4}));
    expect_same(value_of({"reduce_min", {x}, over({1, 0})}), ints(dtype, {}, {1}));
  }
}

TEST(Reduce, IsLogicalOnBool) {
  const Literal x = ints(boolean, {2, 2}, {1, 0, 1, 1});
  expect_same(value_of({"reduce_and", {x}, over({1})}), ints(boolean, {2}, {0, 1}));
  expect_same(value_of({"reduce_or", {x}, over({0, 1}, true)}), ints(boolean, {1, 1}, {1}));
}

TEST(Reduce, OverNoAxesIsTheOperand) {
  const Literal x = ints(i32, {2, 2}, {1, 2, 3, 4});
  for (const std::string_view op : kNumeric) expect_same(value_of({op, {x}, over({})}), x);
}

TEST(Reduce, OfNoElementsGivesTheIdentity) {
  const Literal floats(f32, {2, 0});
  expect_same(value_of({"reduce_sum", {floats}, over({1})}), doubles(f32, {2}, {0, 0}));
  expect_same(value_of({"reduce_prod", {floats}, over({1})}), doubles(f32, {2}, {1, 1}));
  expect_same(value_of({"reduce_max", {floats}, over({1})}), doubles(f32, {2}, {-kInf, -kInf}));
  expect_same(value_of({"reduce_min", {floats}, over({1})}), doubles(f32, {2}, {kInf, kInf}));
  const Literal bytes(i8, {0});
  expect_same(value_of({"reduce_max", {bytes}, over({0})}), ints(i8, {}, {-128}));
  expect_same(value_of({"reduce_min", {bytes}, over({0})}), ints(i8, {}, {127}));
  const Literal bools(boolean, {0});
  expect_same(value_of({"reduce_and", {bools}, over({0})}), ints(boolean, {}, {1}));
  expect_same(value_of({"reduce_or", {bools}, over({0})}), ints(boolean, {}, {0}));
  EXPECT_EQ(value_of({"reduce_sum", {floats}, over({0})}).sizes(), (Sizes{0}));
}

TEST(Reduce, NanWins) {
  const Literal x = doubles(f32, {3}, {1.0, kNan, 2.0});
  for (const std::string_view op : kNumeric) {
    EXPECT_TRUE(std::isnan(value_of({op, {x}, over({0})}).at(0))) << op;
  }
}

TEST(Reduce, WrapsAndRoundsOnceAtTheEnd) {
  EXPECT_EQ(value_of({"reduce_sum", {ints(i8, {3}, {127, 127, 127})}, over({0})}).at_int(0), 125);
  // 2048 + 1 + 1 in f16 steps would stay at 2048.
  EXPECT_EQ(value_of({"reduce_sum", {doubles(f16, {3}, {2048, 1, 1})}, over({0})}).at(0), 2050.0);
}

TEST(Reduce, SizesStaySymbolic) {
  const SymExpr s0 = SymExpr::size(0);
  EXPECT_EQ(type_of("reduce_sum", {meta(f32, {s0, 4, s0})}, over({1})), "f32[s0, s0]");
  EXPECT_EQ(type_of("reduce_sum", {meta(f32, {s0, 4})}, over({0}, true)), "f32[1, 4]");
}

TEST(Reduce, C1RefusesAnAxisOutOfRange) {
  for (const std::string_view op : kNumeric) {
    EXPECT_EQ(error_of(op, {meta(f32, {2, 2})}, over({0, -3})),
              std::string(op) + ": C1 axis: expected an axis in [-2, 2), got -3");
  }
}

TEST(Reduce, C2RefusesARepeatedAxis) {
  EXPECT_EQ(error_of("reduce_sum", {meta(f32, {2, 2})}, over({0, -2})),
            "reduce_sum: C2 repeated axis: expected axes without repeats, got [0, -2]");
}

TEST(Reduce, C3RefusesTheOtherKindOfDType) {
  EXPECT_EQ(error_of("reduce_sum", {meta(boolean, {2})}, over({0})),
            "reduce_sum: C3 dtype: expected a number dtype, got bool");
  EXPECT_EQ(error_of("reduce_and", {meta(i32, {2})}, over({0})),
            "reduce_and: C3 dtype: expected bool, got i32");
}

// reduce_mean

TEST(ReduceMean, DividesTheSum) {
  expect_same(value_of({"reduce_mean", {doubles(f32, {2, 2}, {1, 2, 3, 5})}, over({1})}),
              doubles(f32, {2}, {1.5, 4.0}));
  EXPECT_TRUE(std::isnan(value_of({"reduce_mean", {Literal(f32, {0})}, over({0})}).at(0)));
}

TEST(ReduceMean, OfF16DoesNotOverflow) {
  const OneOp call{"reduce_mean", {doubles(f16, {3}, {60000, 60000, 60000})}, over({0})};
  EXPECT_EQ(value_of(call).at(0), doubles(f16, {}, {60000}).at(0));
  expect_decomposition_agrees(call, 0.0);
}

TEST(ReduceMean, C3RefusesIntegers) {
  EXPECT_EQ(error_of("reduce_mean", {meta(i32, {2})}, over({0})),
            "reduce_mean: C3 dtype: expected a floating dtype, got i32");
}

// variance

TEST(Variance, IsTheMeanSquaredDistance) {
  const Literal x = doubles(f64, {4}, {1, 2, 3, 6});
  ir::Attrs attrs = over({0});
  EXPECT_DOUBLE_EQ(value_of({"variance", {x}, attrs}).at(0), 3.5);
  attrs.insert({"correction", std::int64_t{1}});
  EXPECT_DOUBLE_EQ(value_of({"variance", {x}, attrs}).at(0), 14.0 / 3.0);
}

TEST(Variance, OfTooFewElementsIsNan) {
  ir::Attrs attrs = over({0});
  EXPECT_TRUE(std::isnan(value_of({"variance", {Literal(f32, {0})}, attrs}).at(0)));
  attrs.insert({"correction", std::int64_t{1}});
  EXPECT_TRUE(std::isnan(value_of({"variance", {doubles(f32, {1}, {3})}, attrs}).at(0)));
}

TEST(Variance, KeepsItsDigitsFarFromZero) {
  const OneOp call{"variance", {doubles(f32, {4}, {10000, 10001, 10002, 10003})}, over({0})};
  EXPECT_EQ(value_of(call).at(0), 1.25);
  expect_decomposition_agrees(call, 1e-6);
}

TEST(Variance, C3RefusesIntegers) {
  EXPECT_EQ(error_of("variance", {meta(i32, {2})}, over({0})),
            "variance: C3 dtype: expected a floating dtype, got i32");
}

TEST(Variance, C4RefusesANegativeCorrection) {
  ir::Attrs attrs = over({0});
  attrs.insert({"correction", std::int64_t{-1}});
  EXPECT_EQ(error_of("variance", {meta(f32, {2})}, attrs),
            "variance: C4 correction: expected at least 0, got -1");
}

}  // namespace
}  // namespace heddle::testing
