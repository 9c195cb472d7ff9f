#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;

Literal to(DType dtype, const Literal& x) { return value_of({"convert", {x}, {{"dtype", dtype}}}); }

TEST(Convert, FloatToIntegerTruncatesAndSaturates) {
  const Literal x = doubles(f32, {7}, {1.9, -1.9, 1e30, -1e30, kNan, kInf, -kInf});
  expect_same(to(i8, x), ints(i8, {7}, {1, -1, 127, -128, 0, 127, -128}));
  expect_same(to(u8, x), ints(u8, {7}, {1, 0, 255, 0, 0, 255, 0}));
  expect_same(to(i16, x), ints(i16, {7}, {1, -1, 32767, -32768, 0, 32767, -32768}));
  constexpr std::int64_t kMax32 = std::numeric_limits<std::int32_t>::max();
  expect_same(to(i32, x), ints(i32, {7}, {1, -1, kMax32, -kMax32 - 1, 0, kMax32, -kMax32 - 1}));
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  expect_same(to(i64, x), ints(i64, {7}, {1, -1, kMax, -kMax - 1, 0, kMax, -kMax - 1}));
}

TEST(Convert, IntegerToNarrowerIntegerWraps) {
  const Literal x = ints(i32, {4}, {300, -1, 128, 65536});
  expect_same(to(i8, x), ints(i8, {4}, {44, -1, -128, 0}));
  expect_same(to(u8, x), ints(u8, {4}, {44, 255, 128, 0}));
}

TEST(Convert, ToBoolIsNotZero) {
  expect_same(to(boolean, doubles(f32, {4}, {0.0, -0.0, 0.25, kNan})),
              ints(boolean, {4}, {0, 0, 1, 1}));
  expect_same(to(boolean, ints(i32, {2}, {256, 0})), ints(boolean, {2}, {1, 0}));
}

TEST(Convert, RoundsToNearestEven) {
  expect_same(to(f16, doubles(f32, {3}, {2049.0, 2051.0, 65520.0})),
              doubles(f16, {3}, {2048.0, 2052.0, kInf}));
  expect_same(to(bf16, doubles(f32, {2}, {257.0, 259.0})), doubles(bf16, {2}, {256.0, 260.0}));
  const std::int64_t above = (std::int64_t{1} << 24) + 1;
  EXPECT_EQ(to(f32, ints(i64, {1}, {above})).at(0), 16777216.0);
}

TEST(Convert, RoundsI64ToF32Once) {
  // Just above a tie of f32; by way of f64 it would fall on the tie and then to the even side.
  const std::int64_t x = (std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1;
  EXPECT_EQ(to(f32, ints(i64, {1}, {x})).at(0), static_cast<double>(static_cast<float>(x)));
  EXPECT_EQ(to(f32, ints(i64, {1}, {x})).at(0), 0x1.000002p60);
}

TEST(Convert, UnsignedIntegersSaturateAndWrap) {
  const Literal reals = doubles(f64, {6}, {-1, kNan, 65535.9, 4294967296.0, 0x1p63, 1e20});
  expect_same(to(u16, reals), ints(u16, {6}, {0, 0, 65535, 65535, 65535, 65535}));
  expect_same(to(u32, reals), ints(u32, {6}, {0, 0, 65535, 4294967295, 4294967295, 4294967295}));
  expect_same(to(u64, reals), ints(u64, {6}, {0, 0, 65535, 4294967296, INT64_MIN, -1}));
  expect_same(to(u32, ints(i64, {2}, {-1, 1LL << 32})), ints(u32, {2}, {4294967295, 0}));
  expect_same(to(i32, ints(u32, {1}, {4294967295})), ints(i32, {1}, {-1}));
  expect_same(to(f64, ints(u64, {1}, {-1})), doubles(f64, {1}, {0x1p64}));
  expect_same(to(f32, ints(u64, {1}, {INT64_MIN + 1})), doubles(f32, {1}, {0x1p63}));
  expect_same(to(u64, ints(u32, {1}, {4294967295})), ints(u64, {1}, {4294967295}));
  expect_same(to(u64, ints(i8, {1}, {-1})), ints(u64, {1}, {-1}));
}

TEST(Convert, Float8IsReachedByWayOfF32) {
  // As an f32 it is a tie, which goes to the even code.
  expect_same(to(f8e4m3fn, doubles(f64, {1}, {1.0625 + 0x1p-40})), doubles(f8e4m3fn, {1}, {1}));
  expect_same(to(f8e5m2, ints(i64, {2}, {61439, 61440})), doubles(f8e5m2, {2}, {57344, kInf}));
  expect_same(to(f8e4m3fn, doubles(f32, {2}, {464, 465})), doubles(f8e4m3fn, {2}, {448, kNan}));
  expect_same(to(i8, doubles(f8e5m2, {3}, {-3.5, kInf, kNan})), ints(i8, {3}, {-3, 127, 0}));
  expect_same(to(f16, doubles(f8e4m3fnuz, {2}, {-240, kNan})), doubles(f16, {2}, {-240, kNan}));
}

TEST(Convert, EveryPairKeepsZeroAndOne) {
  for (const DType from : kAllDTypes) {
    for (const DType dtype : kAllDTypes) {
      const std::int64_t least = from == f8e8m0fnu || dtype == f8e8m0fnu ? 1 : 0;  // has no zero
      expect_same(to(dtype, ints(from, {2}, {least, 1})), ints(dtype, {2}, {least, 1}));
      EXPECT_EQ(to(dtype, Literal(from, {0, 2})).sizes(), (Sizes{0, 2}));
    }
  }
}

}  // namespace
}  // namespace heddle::testing
