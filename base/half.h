// 16-bit floating types as storage, with conversions that round to nearest even.
#pragma once

#include <cstdint>

namespace heddle::base {

struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
};

struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const;
};

}  // namespace heddle::base
