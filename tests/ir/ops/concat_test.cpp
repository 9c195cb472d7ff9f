#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Dims;
using ir::Literal;
using ir::Sizes;
using ir::SymExpr;

ir::Attrs along(std::int64_t axis) { return {{"axis", axis}}; }
ir::Attrs parts(std::int64_t axis, Dims sizes) {
  return {{"axis", axis}, {"sizes", std::move(sizes)}};
}

TEST(Concat, JoinsAlongAnAxis) {
  const Literal a = ints(i32, {2, 1}, {1, 2});
  const Literal b = ints(i32, {2, 2}, {3, 4, 5, 6});
  expect_same(value_of({"concat", {a, b}, along(1)}), ints(i32, {2, 3}, {1, 3, 4, 2, 5, 6}));
  expect_same(value_of({"concat", {b, b}, along(-2)}), ints(i32, {4, 2}, {3, 4, 5, 6, 3, 4, 5, 6}));
}

TEST(Concat, PromotesAndTakesEmptyOperands) {
  expect_same(
      value_of(
          {"concat", {ints(i32, {1}, {3}), Literal(f32, {0}), doubles(f32, {1}, {0.5})}, along(0)}),
      doubles(f32, {2}, {3.0, 0.5}));
}

TEST(Concat, AddsSymbolicSizes) {
  const SymExpr s0 = SymExpr::size(0);
  EXPECT_EQ(
      type_of("concat", {meta(f32, {s0, 2}), meta(f32, {3, 2}), meta(f32, {s0, 2})}, along(0)),
      "f32[2*s0+3, 2]");
}

TEST(Concat, C1RefusesNoOperands) {
  EXPECT_EQ(error_of("concat", {}, along(0)),
            "concat: C1 operands: expected at least one operand, got none");
}

TEST(Concat, C2RefusesAnAxisOutOfRange) {
  EXPECT_EQ(error_of("concat", {meta(f32, {2})}, along(1)),
            "concat: C2 axis: expected an axis in [-1, 1), got 1");
}

TEST(Concat, C3RefusesAnotherRank) {
  EXPECT_EQ(error_of("concat", {meta(f32, {2, 2}), meta(f32, {2})}, along(0)),
            "concat: C3 rank: expected rank 2, got rank 1 of operand 1");
}

TEST(Concat, C4RefusesOtherSizes) {
  EXPECT_EQ(error_of("concat", {meta(f32, {2, 2}), meta(f32, {2, 3})}, along(0)),
            "concat: C4 sizes: expected 2, got 3");
}

TEST(Split, CutsIntoWindows) {
  const auto got =
      evaluate({"split", {ints(i32, {2, 3}, {1, 2, 3, 4, 5, 6})}, parts(-1, {1, 0, 2})});
  ASSERT_EQ(got.size(), 3u);
  expect_same(got[0], ints(i32, {2, 1}, {1, 4}));
  EXPECT_EQ(got[1].sizes(), (Sizes{2, 0}));
  expect_same(got[2], ints(i32, {2, 2}, {2, 3, 5, 6}));
}

TEST(Split, C1RefusesAnAxisOutOfRange) {
  EXPECT_EQ(error_of("split", {meta(f32, {2})}, parts(-2, {2})),
            "split: C1 axis: expected an axis in [-1, 1), got -2");
}

TEST(Split, C2RefusesNoSizesAndNegativeOnes) {
  EXPECT_EQ(error_of("split", {meta(f32, {2})}, parts(0, {})),
            "split: C2 sizes: expected at least one size, got []");
  EXPECT_EQ(error_of("split", {meta(f32, {2})}, parts(0, {3, -1})),
            "split: C2 sizes: expected sizes of at least 0, got [3, -1]");
}

TEST(Split, C3RefusesSizesThatDoNotAddUp) {
  EXPECT_EQ(error_of("split", {meta(f32, {4})}, parts(0, {1, 2})),
            "split: C3 sum of sizes: expected 4, got 3");
}

}  // namespace
}  // namespace heddle::testing
