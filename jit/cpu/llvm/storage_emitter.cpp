// Values as they lie in memory, and back: what is rounded for that is rounded once.
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

constexpr unsigned kBf16Lanes = 16;

}  // namespace

Value* ScalarEmitter::from_storage(DType dtype, Value* stored) {
  if (dtype == DType::Bool) return b_.CreateICmpNE(stored, integers_like(stored, 0));
  if (!is_floating(dtype) || dtype == DType::F32 || dtype == DType::F64) return stored;
  const unsigned lanes = lanes_of(stored);
  llvm::Type* type = compute_type(dtype, lanes);
  Value* value = nullptr;
  if (dtype == DType::F16) {
    value = b_.CreateFPExt(b_.CreateBitCast(stored, with_lanes(b_.getHalfTy(), lanes)), type);
  } else if (is_float8(dtype)) {
    value = float8_value(dtype, stored);
  } else {
    Value* wide = b_.CreateZExt(stored, with_lanes(b_.getInt32Ty(), lanes));
    value = b_.CreateBitCast(b_.CreateShl(wide, 16), type);
  }
  if (!llvm::isa<llvm::Constant>(value)) widened_[{dtype, value}] = stored;
  return value;
}

Value* ScalarEmitter::to_storage(DType dtype, Value* value) {
  const unsigned lanes = lanes_of(value);
  const bool narrows =
      dtype == DType::BF16 && narrows_to_bf16_ && lanes != 0 && lanes % kBf16Lanes == 0;
  if (const auto known = rounded_.find(value); narrows && known != rounded_.end())
    return narrowed_to_bf16(known->second);
  if (const auto known = widened_.find({dtype, value}); known != widened_.end())
    return known->second;
  switch (dtype) {
    case DType::Bool:
      return b_.CreateZExt(value, storage_type(dtype, lanes));
    case DType::F16:
      return b_.CreateBitCast(b_.CreateFPTrunc(value, with_lanes(b_.getHalfTy(), lanes)),
                              storage_type(dtype, lanes));
    case DType::BF16:
      return narrows ? narrowed_to_bf16(value) : rounded_to_bf16(value);
    default:
      return is_float8(dtype) ? float8_code(dtype, value) : value;
  }
}

Value* ScalarEmitter::rounded_to_bf16(Value* value) {
  const unsigned lanes = lanes_of(value);
  Value* bits = b_.CreateBitCast(value, with_lanes(b_.getInt32Ty(), lanes));
  Value* odd = b_.CreateAnd(b_.CreateLShr(bits, 16), 1);
  Value* even = b_.CreateAdd(bits, b_.CreateAdd(odd, integers_like(bits, 0x7fff)));
  Value* quiet = b_.CreateOr(bits, integers_like(bits, 0x400000));
  Value* rounded = b_.CreateSelect(b_.CreateFCmpUNO(value, value), quiet, even);
  return b_.CreateTrunc(b_.CreateLShr(rounded, 16), storage_type(DType::BF16, lanes));
}

Value* ScalarEmitter::flushed_to_bf16(Value* value) {
  if (!narrows_to_bf16_ || lanes_of(value) != kBf16Lanes) return rounded_to_bf16(value);
  return b_.CreateBitCast(
      b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {value}),
      storage_type(DType::BF16, kBf16Lanes));
}

Value* ScalarEmitter::narrowed_to_bf16(Value* value) {
  constexpr std::uint32_t kSubnormal = 0x20;  // of VFPCLASSPS
  llvm::Type* type = storage_type(DType::BF16, kBf16Lanes);
  std::vector<Value*> parts;
  Value* subnormal = nullptr;
  for (unsigned first = 0; first < lanes_of(value); first += kBf16Lanes) {
    Value* part = b_.CreateShuffleVector(value, lane_range(first, kBf16Lanes));
    Value* narrow =
        b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {part});
    parts.push_back(b_.CreateBitCast(narrow, type));
    Value* found = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_fpclass_ps_512, {},
                                      {part, b_.getInt32(kSubnormal)});
    subnormal = subnormal == nullptr ? found : b_.CreateOr(subnormal, found);
  }
  Value* none = b_.CreateICmpEQ(b_.CreateBitCast(subnormal, b_.getInt16Ty()), b_.getInt16(0));
  return either(
      none, [&] { return concatenate(b_, parts); }, [&] { return rounded_to_bf16(value); });
}

}  // namespace heddle::jit::cpu
