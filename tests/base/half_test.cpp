#include "base/half.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace heddle::base {
namespace {

/// A 16-bit format by its definition: sign, `exponent_bits`, the rest mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int exponent(std::uint16_t bits) const {
    return (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  }
  int mantissa(std::uint16_t bits) const { return bits & ((1 << mantissa_bits) - 1); }
  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
  bool is_nan(std::uint16_t bits) const { return (bits & 0x7fff) > infinity(); }

  /// The value; infinity as the next power of two after the largest, which is how rounding sees it.
  double value(std::uint16_t bits) const {
    const double sign = bits >> 15 != 0 ? -1.0 : 1.0;
    const int e = exponent(bits);
    const double fraction = std::ldexp(mantissa(bits), -mantissa_bits);
    if (e == 0) return sign * std::ldexp(fraction, 1 - bias());
    return sign * std::ldexp(1.0 + fraction, e - bias());
  }

  /// The nearest pattern of a finite value, ties to the even one, by bisection over the patterns.
  std::uint16_t nearest(float value_in) const {
    const double magnitude = std::fabs(static_cast<double>(value_in));
    const std::uint16_t sign = std::signbit(value_in) ? 0x8000 : 0;
    if (magnitude >= value(infinity())) return sign | infinity();
    std::uint16_t low = 0;
    std::uint16_t high = infinity();
    while (high - low > 1) {
      const auto middle = static_cast<std::uint16_t>((low + high) / 2);
      (value(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - value(low);
    const double above = value(high) - magnitude;
    const bool up = above < below || (above == below && low % 2 == 1);
    return sign | (up ? high : low);
  }
};

constexpr Format kHalf{5, 10};
constexpr Format kBFloat16{8, 7};

template <typename T>
T from_bits(std::uint16_t bits) {
  T value;
  value.bits = bits;
  return value;
}

template <typename T>
void check_all_patterns(const Format& format) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = static_cast<float>(from_bits<T>(bits));
    if (format.is_nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << i;
      ASSERT_TRUE(format.is_nan(T(value).bits)) << std::hex << i;
      continue;
    }
    if ((bits & 0x7fff) == format.infinity()) {
      ASSERT_TRUE(std::isinf(value)) << std::hex << i;
    } else {
      ASSERT_EQ(value, format.value(bits)) << std::hex << i;
    }
    ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << std::hex << i;
    ASSERT_EQ(T(value).bits, bits) << std::hex << i;
  }
}

template <typename T>
void check_rounding(const Format& format, float value) {
  if (std::isnan(value)) {
    ASSERT_TRUE(format.is_nan(T(value).bits));
    return;
  }
  ASSERT_EQ(T(value).bits, format.nearest(value)) << std::hexfloat << value;
}

/// Between all neighbours: the midpoint and the floats beside it.
template <typename T>
void check_midpoints(const Format& format) {
  for (std::uint16_t bits = 0; bits < format.infinity(); ++bits) {
    const double middle =
        (format.value(bits) + format.value(static_cast<std::uint16_t>(bits + 1))) / 2;
    const auto at = static_cast<float>(middle);
    ASSERT_EQ(at, middle);
    for (const float value : {at, std::nextafter(at, 0.0F), std::nextafter(at, INFINITY)}) {
      check_rounding<T>(format, value);
      check_rounding<T>(format, -value);
    }
  }
}

template <typename T>
void check_random(const Format& format) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    check_rounding<T>(format, std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
}

TEST(Half, every_pattern_there_and_back) { check_all_patterns<Half>(kHalf); }
TEST(BFloat16, every_pattern_there_and_back) { check_all_patterns<BFloat16>(kBFloat16); }
TEST(Half, rounds_to_nearest_even) { check_midpoints<Half>(kHalf); }
TEST(BFloat16, rounds_to_nearest_even) { check_midpoints<BFloat16>(kBFloat16); }
TEST(Half, rounds_random_floats) { check_random<Half>(kHalf); }
TEST(BFloat16, rounds_random_floats) { check_random<BFloat16>(kBFloat16); }

TEST(Half, extremes) {
  EXPECT_EQ(Half(65504.0F).bits, 0x7bff);
  EXPECT_EQ(Half(65519.99F).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0F).bits, 0x7c00);
  EXPECT_EQ(Half(-INFINITY).bits, 0xfc00);
  EXPECT_EQ(Half(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(Half(-0.0F).bits, 0x8000);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

}  // namespace
}  // namespace heddle::base
