#include "base/float8.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heddle::base {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint8_t kSign = 0x80;
constexpr int kPowerBias = 127;
constexpr std::uint8_t kPowerNan = 0xff;

float power_value(std::uint8_t code) {
  return code == kPowerNan ? kNan : std::ldexp(1.0f, code - kPowerBias);
}

std::uint8_t power_code(double value) {
  if (!(value > 0) || std::isinf(value)) return kPowerNan;
  int exponent = 0;
  const double part = std::frexp(value, &exponent);  // in [0.5, 1)
  const int code = exponent - 1 + (part >= 0.75 ? 1 : 0) + kPowerBias;
  return static_cast<std::uint8_t>(std::clamp<int>(code, 0, kPowerNan));
}

}  // namespace

float float8_value(DType dtype, std::uint8_t code) {
  if (dtype == DType::F8E8M0FNU) return power_value(code);
  const Float8Format format = float8_format(dtype);
  const float sign = (code & kSign) != 0 ? -1.0f : 1.0f;
  const int magnitude = code & ~kSign;
  if (format.one_zero ? code == format.nan : magnitude > format.beyond) return kNan;
  if (!format.one_zero && magnitude == format.beyond)
    return format.beyond == format.nan ? std::copysign(kNan, sign)
                                       : sign * std::numeric_limits<float>::infinity();
  const int hidden = 1 << format.mantissa;
  const int exponent = magnitude >> format.mantissa;
  const int mantissa = (magnitude & (hidden - 1)) + (exponent == 0 ? 0 : hidden);
  return sign * std::ldexp(static_cast<float>(mantissa),
                           std::max(exponent, 1) - format.bias - format.mantissa);
}

std::uint8_t float8_code(DType dtype, double value) {
  if (dtype == DType::F8E8M0FNU) return power_code(value);
  const Float8Format format = float8_format(dtype);
  const std::uint8_t sign = std::signbit(value) && !format.one_zero ? kSign : 0;
  if (std::isnan(value)) return sign | format.nan;
  const double size = std::fabs(value);
  if (std::isinf(size)) return sign | format.beyond;
  const int least = 1 - format.bias;
  const int exponent = size == 0 ? least : std::max(std::ilogb(size), least);
  // In units of the last place: below the hidden bit for subnormal numbers, and it may round up to the next power of two.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, format.mantissa - exponent)));
  const int code = ((exponent - least) << format.mantissa) + units;
  if (code > format.largest) return sign | format.beyond;
  if (!format.one_zero) return static_cast<std::uint8_t>(sign | code);
  return static_cast<std::uint8_t>(std::signbit(value) && code != 0 ? code | kSign : code);
}

}  // namespace heddle::base
