// cumsum against sums written out, and its constraints.
#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;

Literal cumsum(const Literal& x, std::int64_t axis, bool exclusive = false, bool reverse = false) {
  return value_of(
      {"cumsum", {x}, {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}});
}

TEST(Cumsum, EveryDTypeInFourWays) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {4}, {1, 2, 3, 4});
    expect_same(cumsum(x, 0), ints(dtype, {4}, {1, 3, 6, 10}));
    expect_same(cumsum(x, -1, true), ints(dtype, {4}, {0, 1, 3, 6}));
    expect_same(cumsum(x, 0, false, true), ints(dtype, {4}, {10, 9, 7, 4}));
    expect_same(cumsum(x, 0, true, true), ints(dtype, {4}, {9, 7, 4, 0}));
  }
}

TEST(Cumsum, AlongEachAxisThroughStrides) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = spread_out(ints(dtype, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
    expect_same(cumsum(x, 0), ints(dtype, {2, 2, 2}, {1, 2, 3, 4, 6, 8, 10, 12}));
    expect_same(cumsum(x, 1), ints(dtype, {2, 2, 2}, {1, 2, 4, 6, 5, 6, 12, 14}));
    expect_same(cumsum(x, 2), ints(dtype, {2, 2, 2}, {1, 3, 3, 7, 5, 11, 7, 15}));
  }
}

TEST(Cumsum, HalvesAreCarriedInSingle) {
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE(name_of(dtype));
    const Literal ones = ints(dtype, {4096}, std::vector<std::int64_t>(4096, 1));
    EXPECT_EQ(cumsum(ones, 0).at(4095), 4096);
  }
}

TEST(Cumsum, IntegersWrapAndNaNStays) {
  expect_same(cumsum(ints(i8, {2}, {100, 100}), 0), ints(i8, {2}, {100, -56}));
  for (const DType dtype : kFloats) {
    const Literal y = cumsum(with_nan(noise(dtype, {4}), 1), 0);
    for (std::int64_t k = 0; k < 4; ++k) EXPECT_EQ(std::isnan(y.at(k)), k >= 1) << k;
  }
}

TEST(Cumsum, EmptyAndSingle) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    EXPECT_EQ(cumsum(Literal(dtype, {2, 0}), 1).sizes(), (Sizes{2, 0}));
    EXPECT_EQ(cumsum(Literal(dtype, {0, 2}), 1).sizes(), (Sizes{0, 2}));
    expect_same(cumsum(ints(dtype, {1, 1}, {5}), 0), ints(dtype, {1, 1}, {5}));
    expect_same(cumsum(ints(dtype, {1, 1}, {5}), 0, true), ints(dtype, {1, 1}, {0}));
  }
}

TEST(Cumsum, cumsum_c1) {
  EXPECT_EQ(error_of("cumsum", {meta(boolean, {2})}, {{"axis", std::int64_t{0}}}),
            "cumsum: C1 x is a number: expected a number, got bool");
}

TEST(Cumsum, cumsum_c2) {
  EXPECT_EQ(error_of("cumsum", {meta(f32, {2})}, {{"axis", std::int64_t{1}}}),
            "cumsum: C2 axis lies within the rank of x: expected an axis in [-1, 1), got 1");
}

}  // namespace
}  // namespace heddle::testing
