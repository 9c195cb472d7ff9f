#include "jit/cpu/llvm/byte_dot.h"

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

bool has(const CodegenTarget& target, std::string_view feature) {
  const std::string wanted = ",+" + std::string(feature) + ",";
  return ("," + target.features + ",").find(wanted) != std::string::npos;
}

bool has_dot(const CodegenTarget& target, unsigned lanes) {
  if (has(target, "avx512vnni") && (lanes == 16 || has(target, "avx512vl"))) return true;
  return lanes < 16 && has(target, "avxvnni");
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

}  // namespace

Value* dot_of_bytes(llvm::IRBuilderBase& b, const std::string& triple, const CodegenTarget& target,
                    Value* sum, Value* left, Value* right) {
  const unsigned lanes = lanes_of(sum);
  const bool fits = llvm::Triple(triple).isX86() && (lanes == 4 || lanes == 8 || lanes == 16);
  if (!fits) return by_elements(b, sum, left, right);
  if (has_dot(target, lanes)) return b.CreateIntrinsic(dot_of(lanes), {}, {sum, left, right});
  return by_pairs(b, lanes, sum, left, right);
}

}  // namespace heddle::jit::cpu
