// Elements of matrices of any dtype, for tests of contractions.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "heddle/dtype.h"

namespace heddle::jit {

/// Small integers, so that every sum is exact in every dtype.
inline std::int64_t element(std::int64_t k, bool is_unsigned) {
  const std::int64_t value = (k * 7 + k / 5) % 6;
  return is_unsigned ? value : value - 3;
}

template <typename T>
void write(std::vector<std::uint8_t>& bytes, std::int64_t k, T value) {
  std::memcpy(bytes.data() + static_cast<std::size_t>(k) * sizeof(T), &value, sizeof(T));
}

inline void put(DType dtype, std::vector<std::uint8_t>& bytes, std::int64_t k, std::int64_t value) {
  switch (dtype) {
    case DType::F32:
      return write(bytes, k, static_cast<float>(value));
    case DType::F64:
      return write(bytes, k, static_cast<double>(value));
    case DType::F16:
      return write(bytes, k, base::Half(static_cast<float>(value)).bits);
    case DType::BF16:
      return write(bytes, k, base::BFloat16(static_cast<float>(value)).bits);
    case DType::I64:
      return write(bytes, k, value);
    case DType::I32:
      return write(bytes, k, static_cast<std::int32_t>(value));
    default:
      return write(bytes, k, static_cast<std::uint8_t>(value));
  }
}

inline double get(DType dtype, const std::vector<std::uint8_t>& bytes, std::int64_t k) {
  const std::uint8_t* p = bytes.data() + static_cast<std::size_t>(k) * size_of(dtype);
  const auto read = [&](auto value) {
    std::memcpy(&value, p, sizeof value);
    return static_cast<double>(value);
  };
  if (dtype == DType::F32) return read(0.0f);
  if (dtype == DType::F64) return read(0.0);
  return dtype == DType::I64 ? read(std::int64_t{0}) : read(std::int32_t{0});
}

}  // namespace heddle::jit
