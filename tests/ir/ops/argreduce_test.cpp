#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;

ir::Attrs along(std::int64_t axis, bool last = false, bool keepdims = false) {
  return {{"axis", axis}, {"last", last}, {"keepdims", keepdims}};
}

TEST(ArgReduce, FindsTheFirstPlaceInEveryDType) {
  for (const DType dtype : kNumbers) {
    const Literal x = ints(dtype, {2, 4}, {1, 3, 0, 3, 2, 0, 2, 0});
    SCOPED_TRACE(name_of(dtype));
    expect_same(value_of({"argmax", {x}, along(1)}), ints(i64, {2}, {1, 0}));
    expect_same(value_of({"argmin", {x}, along(-1)}), ints(i64, {2}, {2, 1}));
    expect_same(value_of({"argmax", {x}, along(0, false, true)}), ints(i64, {1, 4}, {1, 0, 1, 0}));
  }
}

TEST(ArgReduce, FindsTheLastPlaceWhenAsked) {
  const Literal x = ints(i32, {2, 4}, {1, 3, 0, 3, 2, 0, 2, 0});
  expect_same(value_of({"argmax", {x}, along(1, true)}), ints(i64, {2}, {3, 2}));
  expect_same(value_of({"argmin", {x}, along(1, true)}), ints(i64, {2}, {2, 3}));
}

TEST(ArgReduce, NanWinsAtItsFirstOrLastPlace) {
  const Literal x = doubles(f32, {4}, {1.0, kNan, 5.0, kNan});
  for (const std::string_view op : {"argmax", "argmin"}) {
    EXPECT_EQ(value_of({op, {x}, along(0)}).at_int(0), 1) << op;
    EXPECT_EQ(value_of({op, {x}, along(0, true)}).at_int(0), 3) << op;
  }
}

TEST(ArgReduce, DecomposesOnlyForTheLastPlace) {
  const Literal x = ints(i32, {4}, {1, 3, 0, 3});
  EXPECT_TRUE(can_decompose({"argmax", {x}, along(0, true)}));
  EXPECT_FALSE(can_decompose({"argmax", {x}, along(0, false)}));
}

TEST(ArgReduce, OtherDimensionsMayBeEmpty) {
  EXPECT_EQ(value_of({"argmax", {Literal(f32, {0, 3})}, along(1)}).sizes(), (Sizes{0}));
}

TEST(ArgReduce, C1RefusesAnAxisOutOfRange) {
  EXPECT_EQ(error_of("argmax", {meta(f32, {2})}, along(1)),
            "argmax: C1 axis: expected an axis in [-1, 1), got 1");
}

TEST(ArgReduce, C2RefusesBool) {
  EXPECT_EQ(error_of("argmin", {meta(boolean, {2})}, along(0)),
            "argmin: C2 dtype: expected a number dtype, got bool");
}

TEST(ArgReduce, C3RefusesAnEmptyAxis) {
  EXPECT_EQ(error_of("argmax", {meta(f32, {2, 0})}, along(1)),
            "argmax: C3 axis size: expected an axis of at least 1 element, got 0");
}

}  // namespace
}  // namespace heddle::testing
