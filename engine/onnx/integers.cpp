#include "engine/onnx/integers.h"

#include <algorithm>

namespace heddle::onnx {

namespace {

bool both_plain(const SymInt& a, const SymInt& b) { return !a.is_symbolic() && !b.is_symbolic(); }

/// Unsigned arithmetic wraps where signed arithmetic is undefined.
std::uint64_t bits(const SymInt& plain) { return static_cast<std::uint64_t>(plain.value()); }
SymInt number_of(std::uint64_t bits) { return static_cast<std::int64_t>(bits); }

}  // namespace

SymInt wrapped(const SymInt& number, DType dtype) {
  if (number.is_symbolic()) return number;
  switch (dtype) {
    case DType::I32:
      return static_cast<std::int32_t>(number.value());
    case DType::I16:
      return static_cast<std::int16_t>(number.value());
    case DType::I8:
      return static_cast<std::int8_t>(number.value());
    case DType::U8:
      return static_cast<std::uint8_t>(number.value());
    case DType::U16:
      return static_cast<std::uint16_t>(number.value());
    case DType::U32:
      return static_cast<std::uint32_t>(number.value());
    case DType::Bool:
      return number.value() != 0 ? 1 : 0;
    default:
      return number;
  }
}

SymInt wrapping_add(const SymInt& a, const SymInt& b) {
  return both_plain(a, b) ? number_of(bits(a) + bits(b)) : a + b;
}

SymInt wrapping_subtract(const SymInt& a, const SymInt& b) {
  return both_plain(a, b) ? number_of(bits(a) - bits(b)) : a - b;
}

SymInt wrapping_multiply(const SymInt& a, const SymInt& b) {
  return both_plain(a, b) ? number_of(bits(a) * bits(b)) : a * b;
}

SymInt divide_to_zero(const SymInt& a, const SymInt& b) {
  if (!b.is_symbolic() && b.value() == 0) return 0;
  if (!b.is_symbolic() && b.value() == -1) return wrapping_subtract(0, a);
  if (both_plain(a, b)) return a.value() / b.value();
  // SymInt rounds down: signs are decided first. Sizes are not negative, so that mostly nothing is guarded.
  if (a < 0) return SymInt(0) - divide_to_zero(SymInt(0) - a, b);
  if (b < 0) return SymInt(0) - a / (SymInt(0) - b);
  return a / b;
}

SymInt larger(const SymInt& a, const SymInt& b) {
  if (!a.is_symbolic() && !b.is_symbolic()) return std::max(a.value(), b.value());
  return max(a, b);
}

SymInt smaller(const SymInt& a, const SymInt& b) {
  if (!a.is_symbolic() && !b.is_symbolic()) return std::min(a.value(), b.value());
  return min(a, b);
}

}  // namespace heddle::onnx
