#include "base/half.h"

#include <bit>

namespace heddle::base {
namespace {

/// `value` >> `shift`, rounded to nearest, ties to even. 1 <= shift <= 31.
std::uint32_t shift_right_rounded(std::uint32_t value, std::uint32_t shift) {
  const std::uint32_t half = std::uint32_t{1} << (shift - 1);
  const std::uint32_t rest = value & ((half << 1) - 1);
  const std::uint32_t kept = value >> shift;
  const bool up = rest > half || (rest == half && (kept & 1) != 0);
  return kept + (up ? 1 : 0);
}

constexpr std::uint32_t kFloatInfinity = 0x7f800000;

}  // namespace

Half::Half(float value) {
  const auto pattern = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((pattern >> 16) & 0x8000);
  const std::uint32_t magnitude = pattern & 0x7fffffff;
  std::uint32_t result = 0;
  if (magnitude > kFloatInfinity) {
    result = 0x7e00 | ((magnitude >> 13) & 0x3ff);  // quiet NaN that keeps the top of its payload
  } else if (magnitude >= 0x47800000) {
    result = 0x7c00;  // 2^16 and above
  } else if (magnitude >= 0x38800000) {
    // Normal: the rounding carry may run into the exponent, up to infinity.
    result = shift_right_rounded(magnitude - (112u << 23), 13);
  } else if (magnitude >= 0x33000000) {
    // Subnormal: the mantissa with its hidden bit, in units of 2^-24.
    const std::uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    result = shift_right_rounded(mantissa, 126 - (magnitude >> 23));
  }
  bits = static_cast<std::uint16_t>(sign | result);
}

Half::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31;
  const std::uint32_t mantissa = bits & 0x3ff;
  std::uint32_t result = 0;
  if (exponent == 31) {
    result = kFloatInfinity | (mantissa << 13);
  } else if (exponent != 0) {
    result = ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    result = std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | result);
}

BFloat16::BFloat16(float value) {
  const auto pattern = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (pattern & 0x7fffffff) > kFloatInfinity;
  bits = static_cast<std::uint16_t>(is_nan ? (pattern >> 16) | 0x40
                                           : shift_right_rounded(pattern, 16));
}

BFloat16::operator float() const {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace heddle::base
