#include "base/float8.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "tests/support/float8_values.h"

namespace heddle::base {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

/// What ml_dtypes 0.5 gives for each number: the codes of e4m3fn, e4m3fnuz, e5m2, e5m2fnuz and e8m0fnu.
struct Row {
  double number;
  int codes[5];
};
const Row kRows[] = {
    {0, {0x00, 0x00, 0x00, 0x00, 0xff}},         {-0.0, {0x80, 0x00, 0x80, 0x00, 0xff}},
    {kInfinity, {0x7f, 0x80, 0x7c, 0x80, 0xff}}, {-kInfinity, {0xff, 0x80, 0xfc, 0x80, 0xff}},
    {kNan, {0x7f, 0x80, 0x7e, 0x80, 0xff}},      {448, {0x7e, 0x80, 0x5f, 0x63, 0x88}},
    {464, {0x7e, 0x80, 0x5f, 0x63, 0x88}},       {464.01, {0x7f, 0x80, 0x5f, 0x63, 0x88}},
    {480, {0x7f, 0x80, 0x60, 0x64, 0x88}},       {1e9, {0x7f, 0x80, 0x7c, 0x80, 0x9d}},
    {-1e9, {0xff, 0x80, 0xfc, 0x80, 0xff}},      {240, {0x77, 0x7f, 0x5c, 0x60, 0x87}},
    {248, {0x78, 0x80, 0x5c, 0x60, 0x87}},       {57344, {0x7f, 0x80, 0x7b, 0x7f, 0x8f}},
    {61440, {0x7f, 0x80, 0x7c, 0x80, 0x8f}},     {0x1p-10, {0x00, 0x01, 0x14, 0x18, 0x75}},
    {0x1.8p-9, {0x02, 0x03, 0x1a, 0x1e, 0x77}},  {-1, {0xb8, 0xc0, 0xbc, 0xc0, 0xff}},
    {1.5, {0x3c, 0x44, 0x3e, 0x42, 0x80}},       {3, {0x44, 0x4c, 0x42, 0x46, 0x81}},
    {0x1p-127, {0x00, 0x00, 0x00, 0x00, 0x00}},  {0x1p-130, {0x00, 0x00, 0x00, 0x00, 0x00}},
    {3e38, {0x7f, 0x80, 0x7c, 0x80, 0xff}},
};

TEST(Float8, RoundsAsMlDtypes) {
  for (const Row& row : kRows)
    for (std::size_t k = 0; k < 5; ++k)
      EXPECT_EQ(float8_code(kFloat8DTypes[k], row.number), row.codes[k])
          << row.number << " as " << name_of(kFloat8DTypes[k]);
}

TEST(Float8, EveryCodeIsItsNumbersCode) {
  for (const DType dtype : kFloat8DTypes) {
    for (int code = 0; code < 256; ++code) {
      const float number = float8_value(dtype, static_cast<std::uint8_t>(code));
      const std::uint8_t back = float8_code(dtype, number);
      if (std::isnan(number))
        EXPECT_TRUE(std::isnan(float8_value(dtype, back))) << name_of(dtype) << " " << code;
      else
        EXPECT_EQ(back, code) << name_of(dtype) << " " << number;
    }
  }
}

TEST(Float8, NumbersHaveTheRangeOfTheirType) {
  EXPECT_EQ(float8_value(f8e4m3fn, 0x7e), 448);
  EXPECT_EQ(float8_value(f8e4m3fn, 0x01), 0x1p-9f);
  EXPECT_EQ(float8_value(f8e4m3fnuz, 0x7f), 240);
  EXPECT_EQ(float8_value(f8e4m3fnuz, 0x01), 0x1p-10f);
  EXPECT_EQ(float8_value(f8e5m2, 0x7b), 57344);
  EXPECT_EQ(float8_value(f8e5m2, 0xfc), -kInfinity);
  EXPECT_EQ(float8_value(f8e5m2, 0x01), 0x1p-16f);
  EXPECT_EQ(float8_value(f8e5m2fnuz, 0x7f), 57344);
  EXPECT_EQ(float8_value(f8e5m2fnuz, 0x01), 0x1p-17f);
  EXPECT_EQ(float8_value(f8e8m0fnu, 0x00), 0x1p-127f);
  EXPECT_EQ(float8_value(f8e8m0fnu, 0xfe), 0x1p127f);
}

/// By search: the finite number next to `value`, of two the even code, or the larger power.
std::uint8_t nearest(DType dtype, double value) {
  int best = -1;
  double distance = kInfinity;
  for (int code = 0; code < 256; ++code) {
    const double number = float8_value(dtype, static_cast<std::uint8_t>(code));
    if (!std::isfinite(number) || std::signbit(number) != std::signbit(value)) continue;
    const double off = std::fabs(number - value);
    const bool wins = dtype == f8e8m0fnu ? number > value : code % 2 == 0;
    if (off < distance || (off == distance && wins)) {
      best = code;
      distance = off;
    }
  }
  return static_cast<std::uint8_t>(best);
}

TEST(Float8, RoundsToTheNearestNumber) {
  for (const DType dtype : kFloat8DTypes) {
    for (const float value : tests::numbers_around(dtype)) {
      const float got = float8_value(dtype, float8_code(dtype, value));
      if (!std::isfinite(got) || (got == 0 && std::signbit(value)))
        continue;  // of these the rows above speak
      EXPECT_EQ(float8_code(dtype, value), nearest(dtype, value)) << value << " " << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace heddle::base
