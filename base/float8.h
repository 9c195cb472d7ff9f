// 8-bit floating types as storage.
#pragma once

#include <cstdint>

#include "heddle/dtype.h"

namespace heddle::base {

/// A sign, exponent bits and mantissa bits, subnormal numbers below 2^(1 - bias).
struct Float8Format {
  int mantissa;  ///< bits
  int bias;
  std::uint8_t largest;  ///< code of the largest finite number
  std::uint8_t beyond;   ///< what is larger, without its sign
  std::uint8_t nan;
  bool one_zero;  ///< the code of -0 is the only NaN, which has no sign
};

/// Of f8e4m3fn, f8e4m3fnuz, f8e5m2 or f8e5m2fnuz.
/// Source: Micikevicius et al., arXiv 2209.05433; Noune et al., arXiv 2206.02915 (fnuz).
constexpr Float8Format float8_format(DType dtype) {
  if (dtype == DType::F8E4M3FN) return {3, 7, 0x7e, 0x7f, 0x7f, false};
  if (dtype == DType::F8E4M3FNUZ) return {3, 8, 0x7f, 0x80, 0x80, true};
  if (dtype == DType::F8E5M2) return {2, 15, 0x7b, 0x7c, 0x7e, false};
  return {2, 16, 0x7f, 0x80, 0x80, true};
}

/// The number that `code` of an 8-bit floating type stands for.
float float8_value(DType dtype, std::uint8_t code);
/// The code next to `value`, ties to even; what rounds to more than the largest number is infinity where the type has
/// it and else NaN. Of f8e8m0fnu, which has powers of two alone: ties to the larger one, NaN for what is not positive.
std::uint8_t float8_code(DType dtype, double value);

template <DType kDType>
struct Float8 {
  std::uint8_t bits = 0;
  Float8() = default;
  explicit Float8(float value) : bits(float8_code(kDType, value)) {}
  explicit operator float() const { return float8_value(kDType, bits); }
};

}  // namespace heddle::base
