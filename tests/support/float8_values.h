// Numbers at which rounding to 8-bit floats changes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/float8.h"

namespace heddle::tests {

/// Every number of the type, the middle between each two neighbours, what lies next to these, and what is too large or too small.
inline std::vector<float> numbers_around(DType dtype) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> numbers{0.0f,        1e-45f,      0x1p-149f, 0x1.8p-128f, 0x1p-127f,
                             0x1.8p-127f, 0x1.4p-127f, 3e38f,     kInfinity,   std::nanf("")};
  const auto add_around = [&](float number) {
    for (const float each :
         {number, std::nextafter(number, 0.0f), std::nextafter(number, kInfinity)})
      numbers.push_back(each);
  };
  for (int code = 0; code < 256; ++code) {
    const float number = base::float8_value(dtype, static_cast<std::uint8_t>(code));
    const float next = base::float8_value(dtype, static_cast<std::uint8_t>(code + 1));
    if (!std::isfinite(number) || number < 0) continue;
    add_around(number);
    add_around(std::isfinite(next) && next > number ? (number + next) / 2 : number * 1.0625f);
    add_around(number * 1.04f);
  }
  const std::size_t positive = numbers.size();
  for (std::size_t k = 0; k < positive; ++k) numbers.push_back(-numbers[k]);
  return numbers;
}

}  // namespace heddle::tests
