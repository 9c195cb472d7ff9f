#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;

TEST(Where, ChoosesByTheConditionInEveryDType) {
  const Literal condition = ints(boolean, {4}, {1, 0, 1, 0});
  for (const DType dtype : kAllDTypes) {
    const Literal a = ints(dtype, {4}, {1, 1, 0, 0});
    const Literal b = ints(dtype, {4}, {0, 0, 1, 1});
    expect_same(value_of({"where", {condition, a, b}}), ints(dtype, {4}, {1, 0, 0, 1}));
  }
}

TEST(Where, BroadcastsAllThreeAndPromotesTheTwo) {
  const Literal condition = ints(boolean, {2, 1}, {1, 0});
  const Literal got =
      value_of({"where", {condition, ints(i32, {3}, {1, 2, 3}), doubles(f32, {}, {0.5})}});
  expect_same(got, doubles(f32, {2, 3}, {1, 2, 3, 0.5, 0.5, 0.5}));
}

TEST(Where, LeavesOutNanWhereItIsNotChosen) {
  const double nan = std::nan("");
  const Literal got = value_of(
      {"where",
       {ints(boolean, {2}, {1, 0}), doubles(f32, {2}, {1.0, nan}), doubles(f32, {2}, {nan, 2.0})}});
  expect_same(got, doubles(f32, {2}, {1.0, 2.0}));
}

TEST(Where, TakesEmptyOperands) {
  const Literal got =
      value_of({"where", {Literal(boolean, {0}), Literal(f32, {1}), Literal(f32, {0})}});
  EXPECT_EQ(got.sizes(), (Sizes{0}));
}

TEST(Where, C1RefusesSizesThatDoNotBroadcast) {
  EXPECT_EQ(
      error_of("where", {meta(boolean, {2}), meta(f32, {3}), meta(f32, {3})}),
      "where: C1 sizes broadcast: expected sizes that are equal or 1, got 2 and 3 in dimension 0");
}

TEST(Where, C2RefusesAConditionThatIsNotBool) {
  EXPECT_EQ(error_of("where", {meta(i32, {2}), meta(f32, {2}), meta(f32, {2})}),
            "where: C2 condition: expected bool, got i32");
}

}  // namespace
}  // namespace heddle::testing
