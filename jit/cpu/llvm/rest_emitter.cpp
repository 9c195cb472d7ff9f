// What is left over at the end of a row, where vectors have no masks of their own.
//
// AVX2 masks elements of 32 and 64 bits alone, and stores under a mask take processors of AMD some sixteen cycles (Zen 3); other
// elements, and all without AVX2, LLVM would take one by one. A rest of fewer elements than lanes goes by powers of two instead, each with a
// branch that goes the same way in every row, and with none where the rest is a number.
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>

#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {

using llvm::Value;

bool NestEmitter::goes_by_pieces(Value* mask) const {
  return mask != nullptr && mask == active_ && target_.vector_bytes < 64;
}

/// Lanes 0, …, left_ - 1 of `stored`.
void NestEmitter::write_rest(Value* stored, Value* address, llvm::Align alignment) {
  llvm::Type* element = stored->getType()->getScalarType();
  for (unsigned piece = lanes_ / 2; piece > 0; piece /= 2) {
    Value* has = b_.CreateICmpNE(b_.CreateAnd(left_, b_.getInt32(piece)), b_.getInt32(0));
    Value* low = b_.CreateShuffleVector(stored, lane_range(0, piece));
    when(has, [&] { b_.CreateAlignedStore(low, address, alignment); }, false);
    stored = b_.CreateSelect(has, b_.CreateShuffleVector(stored, lane_range(piece, piece)), low);
    address = b_.CreateSelect(has, b_.CreateGEP(element, address, b_.getInt64(piece)), address);
  }
}

/// The elements from `address` on in lanes 0, …, left_ - 1, and 0 in the others.
Value* NestEmitter::read_rest(llvm::Type* type, Value* address, llvm::Align alignment) {
  llvm::Type* element = type->getScalarType();
  Value* read = nullptr;  // those behind the piece that comes next
  for (unsigned piece = 1; piece < lanes_; piece *= 2) {
    auto* vector = llvm::FixedVectorType::get(element, piece);
    Value* none = llvm::Constant::getNullValue(vector);
    if (read == nullptr) read = none;
    const auto with_piece = [&] {
      Value* before = b_.CreateAnd(left_, b_.getInt32(~(2 * piece - 1)));
      Value* from = b_.CreateGEP(element, address, b_.CreateZExt(before, b_.getInt64Ty()));
      return concatenate(b_, {b_.CreateAlignedLoad(vector, from, alignment), read});
    };
    const auto without = [&] { return concatenate(b_, {read, none}); };
    Value* has = b_.CreateICmpNE(b_.CreateAnd(left_, b_.getInt32(piece)), b_.getInt32(0));
    read = scalars_.either(has, with_piece, without);
  }
  return read;
}

}  // namespace heddle::jit::cpu
