// sort and topk against orders written out, and their constraints.
#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Literal;
using ir::Sizes;

Attrs sorting(std::int64_t axis, bool descending) {
  return {{"axis", axis}, {"descending", descending}};
}

Attrs top(const base::SymExpr& k, std::int64_t axis = -1, bool largest = true) {
  return {{"k", k}, {"axis", axis}, {"largest", largest}};
}

void expect_order(const OneOp& call, const Literal& values, const Literal& indices) {
  const std::vector<Literal> results = evaluate(call);
  ASSERT_EQ(results.size(), 2u);
  expect_same(results[0], values);
  expect_same(results[1], indices);
}

TEST(Sort, IsStableInBothDirectionsAndEveryDType) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {5}, {3, 1, 3, 0, 1});
    expect_order({"sort", {x}, sorting(0, false)}, ints(dtype, {5}, {0, 1, 1, 3, 3}),
                 ints(i64, {5}, {3, 1, 4, 0, 2}));
    expect_order({"sort", {spread_out(x)}, sorting(-1, true)}, ints(dtype, {5}, {3, 3, 1, 1, 0}),
                 ints(i64, {5}, {0, 2, 1, 4, 3}));
  }
}

TEST(Sort, AlongAnInnerAxis) {
  const Literal x = doubles(f32, {2, 3, 2}, {5, 0, 3, 1, 4, 2, 9, 8, 7, 6, 8, 7});
  expect_order({"sort", {spread_out(x)}, sorting(1, false)},
               doubles(f32, {2, 3, 2}, {3, 0, 4, 1, 5, 2, 7, 6, 8, 7, 9, 8}),
               ints(i64, {2, 3, 2}, {1, 0, 2, 1, 0, 2, 1, 1, 2, 2, 0, 0}));
}

TEST(Sort, NaNComesLastEitherWay) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = with_nan(with_nan(ints(dtype, {4}, {0, 2, 0, 1}), 0), 2);
    const Literal nan = with_nan(ints(dtype, {4}, {1, 2, 0, 0}), 2);
    expect_order({"sort", {x}, sorting(0, false)}, with_nan(nan, 3), ints(i64, {4}, {3, 1, 0, 2}));
    expect_order({"topk", {x}, top(2)}, ints(dtype, {2}, {2, 1}), ints(i64, {2}, {1, 3}));
    const Literal three = with_nan(ints(dtype, {3}, {2, 1, 0}), 2);
    expect_order({"topk", {x}, top(3)}, three, ints(i64, {3}, {1, 3, 0}));
  }
}

TEST(Topk, LargestAndSmallestWithTies) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {2, 4}, {1, 4, 4, 2, 3, 3, 0, 3});
    expect_order({"topk", {x}, top(2)}, ints(dtype, {2, 2}, {4, 4, 3, 3}),
                 ints(i64, {2, 2}, {1, 2, 0, 1}));
    expect_order({"topk", {spread_out(x)}, top(2, 1, false)}, ints(dtype, {2, 2}, {1, 2, 0, 3}),
                 ints(i64, {2, 2}, {0, 3, 2, 0}));
    expect_order({"topk", {x}, top(1, 0)}, ints(dtype, {1, 4}, {3, 4, 4, 3}),
                 ints(i64, {1, 4}, {1, 0, 0, 1}));
  }
}

TEST(Sort, EmptyAndSingle) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    EXPECT_EQ(value_of({"sort", {Literal(dtype, {2, 0})}, sorting(1, false)}).sizes(),
              (Sizes{2, 0}));
    EXPECT_EQ(value_of({"sort", {Literal(dtype, {0, 2})}, sorting(1, false)}).sizes(),
              (Sizes{0, 2}));
    EXPECT_EQ(value_of({"topk", {noise(dtype, {2, 3})}, top(0)}).sizes(), (Sizes{2, 0}));
    expect_order({"sort", {ints(dtype, {1}, {7})}}, ints(dtype, {1}, {7}), ints(i64, {1}, {0}));
    expect_order({"topk", {ints(dtype, {1}, {7})}, top(1)}, ints(dtype, {1}, {7}),
                 ints(i64, {1}, {0}));
  }
}

TEST(Topk, TakesASymbolicCount) {
  const auto s0 = base::SymExpr::size(0);
  EXPECT_EQ(type_of("topk", {meta(f32, {3, s0})}, top(s0)), "f32[3, s0]");
  EXPECT_EQ(type_of("topk", {meta(f32, {3, 2 * s0})}, top(s0)), "f32[3, s0]");
}

TEST(Sort, sort_c1) {
  EXPECT_EQ(error_of("sort", {meta(boolean, {2})}),
            "sort: C1 x is a number: expected a number, got bool");
  EXPECT_EQ(error_of("topk", {meta(boolean, {2})}, top(1)),
            "topk: C1 x is a number: expected a number, got bool");
}

TEST(Sort, sort_c2) {
  EXPECT_EQ(error_of("sort", {meta(f32, {2})}, sorting(1, false)),
            "sort: C2 axis lies within the rank of x: expected an axis in [-1, 1), got 1");
  EXPECT_EQ(error_of("topk", {meta(f32, {2})}, top(1, -2)),
            "topk: C2 axis lies within the rank of x: expected an axis in [-1, 1), got -2");
}

TEST(Sort, topk_c3) {
  EXPECT_EQ(
      error_of("topk", {meta(f32, {2})}, top(3)),
      "topk: C3 k is at least 0 and at most the size of x along axis: expected 0 to 2, got 3");
  EXPECT_EQ(
      error_of("topk", {meta(f32, {2})}, top(-1)),
      "topk: C3 k is at least 0 and at most the size of x along axis: expected 0 to 2, got -1");
}

}  // namespace
}  // namespace heddle::testing
