#include "heddle/dtype.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>

#include "base/check.h"
#include "heddle/error.h"

namespace heddle {
namespace {

TEST(DType, names_and_sizes) {
  const std::string_view names[] = {
      "f32",  "f64", "f16", "bf16", "i8",       "u8",         "i16",    "i32",        "i64",
      "bool", "u16", "u32", "u64",  "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"};
  const std::size_t sizes[] = {4, 8, 2, 2, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 1, 1, 1, 1};
  for (const DType dtype : kAllDTypes) {
    const auto index = static_cast<std::size_t>(dtype);
    EXPECT_EQ(name_of(dtype), names[index]);
    EXPECT_EQ(size_of(dtype), sizes[index]);
    EXPECT_EQ(dtype_from_name(names[index]), dtype);
  }
  EXPECT_THROW(static_cast<void>(name_of(static_cast<DType>(99))), InternalError);
}

TEST(DType, unknown_name_is_an_error) {
  try {
    static_cast<void>(dtype_from_name("float"));
    FAIL();
  } catch (const ParseError& error) {
    EXPECT_STREQ(
        error.what(),
        "unknown dtype: expected one of f32, f64, f16, bf16, i8, u8, i16, i32, i64, bool, "
        "u16, u32, u64, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu, got \"float\"");
  }
}

TEST(DType, classes_partition) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(is_floating(dtype) + is_integer(dtype) + (dtype == boolean), 1) << name_of(dtype);
  }
  EXPECT_TRUE(is_signed(i8) && is_signed(bf16));
  for (const DType dtype : {u8, u16, u32, u64, boolean}) EXPECT_FALSE(is_signed(dtype));
}

TEST(Promote, whole_table) {
  // Row and column: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64.
  const DType order[] = {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64};
  const DType want[10][10] = {
      {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64},
      {u8, u8, i16, i16, i32, i64, f16, bf16, f32, f64},
      {i8, i16, i8, i16, i32, i64, f16, bf16, f32, f64},
      {i16, i16, i16, i16, i32, i64, f16, bf16, f32, f64},
      {i32, i32, i32, i32, i32, i64, f16, bf16, f32, f64},
      {i64, i64, i64, i64, i64, i64, f16, bf16, f32, f64},
      {f16, f16, f16, f16, f16, f16, f16, f32, f32, f64},
      {bf16, bf16, bf16, bf16, bf16, bf16, f32, bf16, f32, f64},
      {f32, f32, f32, f32, f32, f32, f32, f32, f32, f64},
      {f64, f64, f64, f64, f64, f64, f64, f64, f64, f64},
  };
  for (std::size_t a = 0; a < 10; ++a) {
    for (std::size_t b = 0; b < 10; ++b) {
      EXPECT_EQ(promote(order[a], order[b]), want[a][b])
          << name_of(order[a]) << ", " << name_of(order[b]);
    }
  }
}

TEST(Promote, unsigned_integers) {
  // Row and column: u8 u16 u32 u64 i8 i16 i32 i64.
  const DType order[] = {u8, u16, u32, u64, i8, i16, i32, i64};
  const DType want[8][8] = {
      {u8, u16, u32, u64, i16, i16, i32, i64},  {u16, u16, u32, u64, i32, i32, i32, i64},
      {u32, u32, u32, u64, i64, i64, i64, i64}, {u64, u64, u64, u64, i64, i64, i64, i64},
      {i16, i32, i64, i64, i8, i16, i32, i64},  {i16, i32, i64, i64, i16, i16, i32, i64},
      {i32, i32, i64, i64, i32, i32, i32, i64}, {i64, i64, i64, i64, i64, i64, i64, i64},
  };
  for (std::size_t a = 0; a < 8; ++a)
    for (std::size_t b = 0; b < 8; ++b)
      EXPECT_EQ(promote(order[a], order[b]), want[a][b])
          << name_of(order[a]) << ", " << name_of(order[b]);
  for (const DType dtype : {u16, u32, u64}) {
    EXPECT_EQ(promote(boolean, dtype), dtype);
    for (const DType real : {f16, bf16, f32, f64}) EXPECT_EQ(promote(dtype, real), real);
  }
}

TEST(Promote, float8_is_converted_by_name) {
  for (const DType dtype : kFloat8DTypes) {
    EXPECT_EQ(promote(dtype, dtype), dtype);
    for (const DType other : {boolean, i8, f16, f32, dtype == f8e5m2 ? f8e4m3fn : f8e5m2}) {
      EXPECT_THROW(promote(dtype, other), DTypeError) << name_of(dtype) << ", " << name_of(other);
      EXPECT_THROW(promote(other, dtype), DTypeError) << name_of(dtype) << ", " << name_of(other);
    }
  }
}

TEST(Promote, three_operands_in_any_order) {
  for (const DType a : kArithmeticDTypes) {
    for (const DType b : kArithmeticDTypes) {
      for (const DType c : kArithmeticDTypes) {
        EXPECT_EQ(promote(promote(a, b), c), promote(a, promote(b, c)))
            << name_of(a) << ", " << name_of(b) << ", " << name_of(c);
      }
    }
  }
}

TEST(DType, accumulators) {
  EXPECT_EQ(accumulator_of(f16), f32);
  EXPECT_EQ(accumulator_of(bf16), f32);
  EXPECT_EQ(accumulator_of(f32), f32);
  EXPECT_EQ(accumulator_of(f64), f64);
  EXPECT_EQ(accumulator_of(boolean), boolean);
  for (const DType dtype : kFloat8DTypes) EXPECT_EQ(accumulator_of(dtype), f32);
  for (const DType dtype : {i8, u8, i16, u16, i32, u32, i64, u64})
    EXPECT_EQ(accumulator_of(dtype), i64);
}

}  // namespace
}  // namespace heddle
