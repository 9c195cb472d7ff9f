// What ScalarEmitter emits for integers, bools and indices.
#include <array>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include "base/check.h"
#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using ir::ScalarOp;
using llvm::Value;

unsigned bits_of(Value* value) { return value->getType()->getScalarSizeInBits(); }

}  // namespace

Value* ScalarEmitter::unary_integer(ScalarOp op, DType dtype, Value* a) {
  switch (op) {
    case ScalarOp::Neg:
      return b_.CreateNeg(a);
    case ScalarOp::Abs:
      return is_signed(dtype) ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse())
                              : a;
    case ScalarOp::Sign: {
      Value* positive = b_.CreateZExt(b_.CreateICmpNE(a, integers_like(a, 0)), a->getType());
      if (!is_signed(dtype)) return dtype == DType::Bool ? a : positive;
      return b_.CreateSelect(b_.CreateICmpSLT(a, integers_like(a, 0)), integers_like(a, -1),
                             positive);
    }
    case ScalarOp::Ceil:
    case ScalarOp::Floor:
    case ScalarOp::Round:
    case ScalarOp::Trunc:
      return a;
    case ScalarOp::Not:
      return b_.CreateNot(a);
    default:
      HD_CHECK(false, "no code for " + std::string(name_of(op)) + " on integers");
      return nullptr;
  }
}

Value* ScalarEmitter::binary_bool(ScalarOp op, Value* a, Value* b) {
  switch (op) {
    case ScalarOp::Add:
    case ScalarOp::Or:
    case ScalarOp::Max:
      return b_.CreateOr(a, b);
    case ScalarOp::Mul:
    case ScalarOp::And:
    case ScalarOp::Min:
      return b_.CreateAnd(a, b);
    case ScalarOp::Sub:
    case ScalarOp::Xor:
      return b_.CreateXor(a, b);
    default:
      HD_CHECK(false, "no code for " + std::string(name_of(op)) + " on bools");
      return nullptr;
  }
}

Value* ScalarEmitter::binary_integer(ScalarOp op, DType dtype, Value* a, Value* b) {
  switch (op) {
    case ScalarOp::Add:
      return b_.CreateAdd(a, b);
    case ScalarOp::Sub:
      return b_.CreateSub(a, b);
    case ScalarOp::Mul:
      return b_.CreateMul(a, b);
    case ScalarOp::Div:
    case ScalarOp::Mod:
    case ScalarOp::Rem:
      return divide_integer(op, dtype, a, b);
    case ScalarOp::Max:
      return maximum(dtype, a, b);
    case ScalarOp::Min:
      return minimum(dtype, a, b);
    case ScalarOp::And:
      return b_.CreateAnd(a, b);
    case ScalarOp::Or:
      return b_.CreateOr(a, b);
    case ScalarOp::Xor:
      return b_.CreateXor(a, b);
    case ScalarOp::Shl:
    case ScalarOp::Shr:
      return shift(op, dtype, a, b);
    case ScalarOp::Pow: {
      if (dtype == DType::U64) return call_lanes("heddle_u64_pow", std::array{a, b});
      Value* result = call_lanes("heddle_i64_pow", std::array{convert(a, dtype, DType::I64),
                                                              convert(b, dtype, DType::I64)});
      return convert(result, DType::I64, dtype);
    }
    default:
      HD_CHECK(false, "no code for " + std::string(name_of(op)) + " on integers");
      return nullptr;
  }
}

Value* ScalarEmitter::divide_integer(ScalarOp op, DType dtype, Value* a, Value* b) {
  const bool has_sign = is_signed(dtype);
  Value* zero = integers_like(a, 0);
  Value* by_zero = b_.CreateICmpEQ(b, zero);
  Value* by_minus_one = has_sign ? b_.CreateICmpEQ(b, integers_like(b, -1)) : nullptr;
  Value* unsafe = has_sign ? b_.CreateOr(by_zero, by_minus_one) : by_zero;
  Value* divisor = b_.CreateSelect(unsafe, integers_like(b, 1), b);
  Value* quotient = nullptr;
  const unsigned lanes = lanes_of(a);
  if (lanes != 0 && bits_of(a) < 64) {
    // The quotient of two integers of 16 (32) bits, rounded to f32 (f64), never reaches the next
    // integer: truncating it is exact.
    const DType real = bits_of(a) <= 16 ? DType::F32 : DType::F64;
    Value* ratio = b_.CreateFDiv(convert(a, dtype, real), convert(divisor, dtype, real));
    llvm::Type* integer = llvm::FixedVectorType::get(b_.getInt32Ty(), lanes);
    const bool fits = has_sign || bits_of(a) < 32;
    quotient = b_.CreateTrunc(
        fits ? b_.CreateFPToSI(ratio, integer) : b_.CreateFPToUI(ratio, integer), a->getType());
  } else {
    quotient = has_sign ? b_.CreateSDiv(a, divisor) : b_.CreateUDiv(a, divisor);
  }
  if (has_sign) quotient = b_.CreateSelect(by_minus_one, b_.CreateNeg(a), quotient);
  if (op == ScalarOp::Div) return b_.CreateSelect(by_zero, zero, quotient);
  Value* rest = b_.CreateSelect(by_zero, zero, b_.CreateSub(a, b_.CreateMul(quotient, b)));
  if (op == ScalarOp::Rem || !has_sign) return rest;
  Value* signs_differ = b_.CreateICmpSLT(b_.CreateXor(rest, b), zero);
  Value* wrong = b_.CreateAnd(b_.CreateICmpNE(rest, zero), signs_differ);
  return b_.CreateSelect(wrong, b_.CreateAdd(rest, b), rest);
}

Value* ScalarEmitter::shift(ScalarOp op, DType dtype, Value* a, Value* b) {
  const std::int64_t width = bits_of(a);
  Value* too_far = b_.CreateICmpUGE(b, integers_like(b, width));
  Value* zero = integers_like(a, 0);
  if (op == ScalarOp::Shr && is_signed(dtype))
    return b_.CreateAShr(a, b_.CreateSelect(too_far, integers_like(b, width - 1), b));
  Value* count = b_.CreateSelect(too_far, zero, b);
  Value* shifted = op == ScalarOp::Shl ? b_.CreateShl(a, count) : b_.CreateLShr(a, count);
  return b_.CreateSelect(too_far, zero, shifted);
}

/// As a real; 1 of 0.
Value* ScalarEmitter::index_inverse(Value* divisor) {
  Value* one = integers_like(divisor, 1);
  Value* safe = b_.CreateSelect(b_.CreateICmpEQ(divisor, integers_like(divisor, 0)), one, divisor);
  llvm::Type* real = with_lanes(b_.getDoubleTy(), lanes_of(divisor));
  return b_.CreateFDiv(llvm::ConstantFP::get(real, 1), b_.CreateSIToFP(safe, real));
}

/// floor(a / b) of an index and what is the inverse of b. A half more is as far from integers as it can be: the error of the
/// inverse and of the product, 2^-52 of the quotient, does not reach one for indices below 2^51.
Value* ScalarEmitter::index_times_inverse(Value* a, Value* inverse) {
  const unsigned lanes = lanes_of(a);
  llvm::Type* real = with_lanes(b_.getDoubleTy(), lanes);
  Value* moved = b_.CreateFAdd(b_.CreateSIToFP(a, real), llvm::ConstantFP::get(real, 0.5));
  return b_.CreateFPToSI(b_.CreateFMul(moved, splat(inverse, lanes)), a->getType());
}

Value* ScalarEmitter::index_floordiv(Value* a, Value* b, bool simple) {
  const unsigned lanes = lanes_of(a);
  const auto* constant = llvm::dyn_cast<llvm::Constant>(b);
  if (constant != nullptr && lanes != 0) constant = constant->getSplatValue();
  const auto* number = llvm::dyn_cast_or_null<llvm::ConstantInt>(constant);
  if (number != nullptr && number->getValue().isPowerOf2())
    return b_.CreateAShr(
        a, integers_like(a, static_cast<std::int64_t>(number->getValue().logBase2())));
  if (lanes != 0) {
    // Indices stay below 2^51, where the f64 quotient does not reach the next integer.
    llvm::Type* real = llvm::FixedVectorType::get(b_.getDoubleTy(), lanes);
    Value* dividend = b_.CreateSIToFP(a, real);
    Value* ratio = nullptr;
    if (number != nullptr && number->getSExtValue() > 0) {
      // A half more is as far from integers as it can be: the reciprocal's error, of 2^-52 of the quotient, does not reach one.
      const double inverse = 1 / static_cast<double>(number->getSExtValue());
      ratio = b_.CreateFMul(b_.CreateFAdd(dividend, llvm::ConstantFP::get(real, 0.5)),
                            llvm::ConstantFP::get(real, inverse));
    } else {
      ratio = b_.CreateFDiv(dividend, b_.CreateSIToFP(b, real));
    }
    return b_.CreateFPToSI(b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, ratio), a->getType());
  }
  Value* divisor = b_.CreateSelect(b_.CreateICmpEQ(b, integers_like(b, 0)), integers_like(b, 1), b);
  if (simple) return b_.CreateUDiv(a, divisor);
  Value* quotient = b_.CreateSDiv(a, divisor);
  Value* rest = b_.CreateSub(a, b_.CreateMul(quotient, divisor));
  Value* below = b_.CreateAnd(b_.CreateICmpNE(rest, integers_like(a, 0)),
                              b_.CreateICmpSLT(b_.CreateXor(rest, divisor), integers_like(a, 0)));
  return b_.CreateSub(quotient, b_.CreateZExt(below, a->getType()));
}

}  // namespace heddle::jit::cpu
