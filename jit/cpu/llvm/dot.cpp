#include "jit/cpu/llvm/dot.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/TargetParser/Triple.h>
#include <string_view>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

bool has_dot(const CodegenTarget& target, unsigned lanes) {
  if (has_feature(target, "avx512vnni") && (lanes == 16 || has_feature(target, "avx512vl")))
    return true;
  return lanes < 16 && has_feature(target, "avxvnni");
}

Intrinsic::ID dot_of(unsigned lanes) {
  if (lanes == 16) return Intrinsic::x86_avx512_vpdpbusd_512;
  return lanes == 8 ? Intrinsic::x86_avx512_vpdpbusd_256 : Intrinsic::x86_avx512_vpdpbusd_128;
}

/// Multiplies pairs of 16 bits and adds each two neighbours.
Intrinsic::ID pairs_of(unsigned lanes) {
  if (lanes == 16) return Intrinsic::x86_avx512_pmaddw_d_512;
  return lanes == 8 ? Intrinsic::x86_avx2_pmadd_wd : Intrinsic::x86_sse2_pmadd_wd;
}

/// Multiplies bytes without a sign by bytes with one and adds each two neighbours, which saturate.
Intrinsic::ID byte_pairs_of(unsigned lanes) {
  if (lanes == 16) return Intrinsic::x86_avx512_pmaddubs_w_512;
  return lanes == 8 ? Intrinsic::x86_avx2_pmadd_ub_sw : Intrinsic::x86_ssse3_pmadd_ub_sw_128;
}

bool has_byte_pairs(const CodegenTarget& target, unsigned lanes) {
  return lanes == 4 ? has_feature(target, "ssse3")
                    : has_feature(target, lanes == 8 ? "avx2" : "avx512bw");
}

Value* by_byte_pairs(llvm::IRBuilderBase& b, unsigned lanes, Value* sum, Value* left,
                     Value* right) {
  auto* bytes = llvm::FixedVectorType::get(b.getInt8Ty(), 4 * lanes);
  auto* halves = llvm::FixedVectorType::get(b.getInt16Ty(), 2 * lanes);
  Value* pairs = b.CreateIntrinsic(byte_pairs_of(lanes), {},
                                   {b.CreateBitCast(left, bytes), b.CreateBitCast(right, bytes)});
  return b.CreateAdd(
      sum, b.CreateIntrinsic(pairs_of(lanes), {}, {pairs, llvm::ConstantInt::get(halves, 1)}));
}

/// Bytes 0 and 2 of each lane make one vector of 16 bits, 1 and 3 the other.
Value* by_pairs(llvm::IRBuilderBase& b, unsigned lanes, Value* sum, Value* left, Value* right) {
  auto* halves = llvm::FixedVectorType::get(b.getInt16Ty(), 2 * lanes);
  const auto constant = [&](std::uint64_t value) { return llvm::ConstantInt::get(halves, value); };
  left = b.CreateBitCast(left, halves);
  right = b.CreateBitCast(right, halves);
  Value* even = b.CreateIntrinsic(pairs_of(lanes), {},
                                  {b.CreateAnd(left, constant(0xff)),
                                   b.CreateAShr(b.CreateShl(right, constant(8)), constant(8))});
  Value* odd = b.CreateIntrinsic(
      pairs_of(lanes), {}, {b.CreateLShr(left, constant(8)), b.CreateAShr(right, constant(8))});
  return b.CreateAdd(b.CreateAdd(sum, even), odd);
}

Value* by_elements(llvm::IRBuilderBase& b, Value* sum, Value* left, Value* right) {
  constexpr std::uint64_t kBits = 8;
  for (std::uint64_t g = 0; g < 4; ++g) {
    const auto constant = [&](std::uint64_t value) {
      return llvm::ConstantInt::get(sum->getType(), value);
    };
    Value* positive = b.CreateAnd(b.CreateLShr(left, constant(kBits * g)), constant(0xff));
    Value* moved = b.CreateShl(right, constant(kBits * (3 - g)));
    sum = b.CreateAdd(sum, b.CreateMul(positive, b.CreateAShr(moved, constant(3 * kBits))));
  }
  return sum;
}

Intrinsic::ID bf16_dot_of(unsigned lanes) {
  if (lanes == 16) return Intrinsic::x86_avx512bf16_dpbf16ps_512;
  return lanes == 8 ? Intrinsic::x86_avx512bf16_dpbf16ps_256
                    : Intrinsic::x86_avx512bf16_dpbf16ps_128;
}

/// The bf16 in the upper halves of the lanes, or in the lower ones, as f32.
Value* half_of(llvm::IRBuilderBase& b, Value* pairs, bool upper) {
  auto* integers = llvm::FixedVectorType::get(b.getInt32Ty(), lanes_of(pairs));
  Value* bits = b.CreateBitCast(pairs, integers);
  bits = upper ? b.CreateAnd(bits, llvm::ConstantInt::get(integers, 0xffff0000))
               : b.CreateShl(bits, llvm::ConstantInt::get(integers, 16));
  return b.CreateBitCast(bits, pairs->getType());
}

}  // namespace

bool has_byte_dot(const CodegenTarget& target) {
  return has_dot(target, static_cast<unsigned>(target.vector_bytes / 4));
}

bool has_bf16_dot(const CodegenTarget& target) {
  return has_feature(target, "avx512bf16") &&
         (target.vector_bytes == 64 || has_feature(target, "avx512vl"));
}

bool has_fast_bf16_dot(const CodegenTarget& target) {
  return has_bf16_dot(target) && target.cpu.starts_with("znver");
}

Value* dot_of_bf16(llvm::IRBuilderBase& b, const std::string& triple, const CodegenTarget& target,
                   Value* sum, Value* left, Value* right) {
  const unsigned lanes = lanes_of(sum);
  if (llvm::Triple(triple).isX86() && has_bf16_dot(target)) {
    auto* pairs = llvm::FixedVectorType::get(b.getBFloatTy(), 2 * lanes);
    return b.CreateIntrinsic(bf16_dot_of(lanes), {},
                             {sum, b.CreateBitCast(left, pairs), b.CreateBitCast(right, pairs)});
  }
  for (const bool upper : {true, false})
    sum = b.CreateIntrinsic(Intrinsic::fma, {sum->getType()},
                            {half_of(b, left, upper), half_of(b, right, upper), sum});
  return sum;
}

Value* dot_of_bytes(llvm::IRBuilderBase& b, const std::string& triple, const CodegenTarget& target,
                    Value* sum, Value* left, Value* right, bool pairs_fit) {
  const unsigned lanes = lanes_of(sum);
  const bool fits = llvm::Triple(triple).isX86() && (lanes == 4 || lanes == 8 || lanes == 16);
  if (!fits) return by_elements(b, sum, left, right);
  if (has_dot(target, lanes)) return b.CreateIntrinsic(dot_of(lanes), {}, {sum, left, right});
  if (pairs_fit && has_byte_pairs(target, lanes)) return by_byte_pairs(b, lanes, sum, left, right);
  return by_pairs(b, lanes, sum, left, right);
}

Value* dot_of_pairs(llvm::IRBuilderBase& b, const std::string& triple, Value* sum, Value* left,
                    Value* right) {
  const unsigned lanes = lanes_of(sum);
  if (llvm::Triple(triple).isX86() && (lanes == 4 || lanes == 8 || lanes == 16))
    return b.CreateAdd(sum, b.CreateIntrinsic(pairs_of(lanes), {}, {left, right}));
  for (const int first : {0, 1}) {
    llvm::SmallVector<int, 16> places;
    for (unsigned k = 0; k < lanes; ++k) places.push_back(first + 2 * static_cast<int>(k));
    const auto half = [&](Value* pairs) {
      return b.CreateSExt(b.CreateShuffleVector(pairs, places), sum->getType());
    };
    sum = b.CreateAdd(sum, b.CreateMul(half(left), half(right)));
  }
  return sum;
}

}  // namespace heddle::jit::cpu
