// Numbers of a few bits, and how they lie in bytes and words.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef bit_panels_op();
OpDef byte_digits_op();
OpDef unpack_bits_op();

/// What a word that holds several of them has.
inline constexpr std::int64_t kWordBits = 32;

/// The number in two's complement that the lowest `bits` of `word` are.
inline std::int64_t signed_bits(std::int64_t word, std::int64_t bits) {
  const std::int64_t half = std::int64_t{1} << (bits - 1);
  return ((word & (2 * half - 1)) ^ half) - half;
}

/// The lowest bit of row `row` of a word of bit_panels: rows 0 to 3 lie in the lowest bits of its bytes, 4 to 7 above them.
inline std::int64_t bit_of_row(std::int64_t row, std::int64_t bits) {
  constexpr std::int64_t kBytes = 4;
  constexpr std::int64_t kByteBits = 8;
  return row % kBytes * kByteBits + row / kBytes * bits;
}

}  // namespace heddle::ir::ops
