#include "jit/cpu/llvm/size_reals.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

namespace heddle::jit::cpu {
namespace {

using Kind = base::SymExpr::Kind;
using llvm::Value;

/// Of a double.
Value* whole(llvm::IRBuilderBase& b, Value* number) {
  Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, number);
  Value* fits = b.CreateFCmpOLT(magnitude, llvm::ConstantFP::get(b.getDoubleTy(), 0x1p62));
  Value* zero = llvm::ConstantFP::get(b.getDoubleTy(), 0);
  return b.CreateFPToSI(b.CreateSelect(fits, number, zero), b.getInt64Ty());
}

Value* apply(llvm::IRBuilderBase& b, Kind kind, Value* left, Value* right) {
  using llvm::Intrinsic::ID;
  const auto unary = [&](ID id) -> Value* { return b.CreateUnaryIntrinsic(id, left); };
  switch (kind) {
    case Kind::RealAdd:
      return b.CreateFAdd(left, right);
    case Kind::RealSub:
      return b.CreateFSub(left, right);
    case Kind::RealMul:
      return b.CreateFMul(left, right);
    case Kind::RealDiv:
      return b.CreateFDiv(left, right);
    case Kind::RealMin:
      return b.CreateSelect(b.CreateFCmpOLT(right, left), right, left);
    case Kind::RealMax:
      return b.CreateSelect(b.CreateFCmpOLT(left, right), right, left);
    case Kind::RealFloor:
      return unary(llvm::Intrinsic::floor);
    case Kind::RealCeil:
      return unary(llvm::Intrinsic::ceil);
    case Kind::RealRound:
      return unary(llvm::Intrinsic::roundeven);
    case Kind::RealSqrt:
      return unary(llvm::Intrinsic::sqrt);
    case Kind::RealAbs:
      return unary(llvm::Intrinsic::fabs);
    default:
      return b.CreateFPExt(b.CreateFPTrunc(left, b.getFloatTy()), b.getDoubleTy());
  }
}

}  // namespace

Value* apply_real(llvm::IRBuilderBase& b, Kind kind, Value* left, Value* right) {
  const llvm::IRBuilderBase::FastMathFlagGuard guard(b);
  b.clearFastMathFlags();
  llvm::Type* number = b.getDoubleTy();
  llvm::Type* bits = b.getInt64Ty();
  if (kind == Kind::Real) return b.CreateBitCast(b.CreateSIToFP(left, number), bits);
  Value* a = b.CreateBitCast(left, number);
  if (kind == Kind::Whole) return whole(b, a);
  return b.CreateBitCast(apply(b, kind, a, b.CreateBitCast(right, number)), bits);
}

}  // namespace heddle::jit::cpu
