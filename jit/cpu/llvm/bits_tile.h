// A block of a contraction by numbers of a few bits: bits_emitter.cpp and fixed_bits_emitter.cpp.
#pragma once

#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {

inline constexpr unsigned kWordBits = 32;

struct NestEmitter::BitsTile {
  const ContractStmt& s;
  const Dequantised& numbers;
  unsigned lanes;
  unsigned bits;
  bool table;  ///< numbers are taken from one
  llvm::Value *a_base, *a_row, *a_column;
  llvm::Value* groups;
  llvm::Value* group_words;
  unsigned vectors = 1;  ///< of a block's row

  unsigned per_word() const { return kWordBits / bits; }
};

}  // namespace heddle::jit::cpu
