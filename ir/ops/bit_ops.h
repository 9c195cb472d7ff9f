// Numbers of a few bits, and how they lie in bytes and words.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef bit_panels_op();
OpDef unpack_bits_op();

/// The number in two's complement that the lowest `bits` of `word` are.
inline std::int64_t signed_bits(std::int64_t word, std::int64_t bits) {
  const std::int64_t half = std::int64_t{1} << (bits - 1);
  return ((word & (2 * half - 1)) ^ half) - half;
}

}  // namespace heddle::ir::ops
