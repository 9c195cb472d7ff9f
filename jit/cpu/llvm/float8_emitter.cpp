// 8-bit floats as LLVM IR. No step takes or gives a subnormal f32 but the least number of f8e8m0fnu, so that a caller's way of
// treating these changes nothing.
#include <cmath>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>

#include "base/float8.h"
#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

constexpr std::int64_t kSign = 0x80;
constexpr std::int64_t kMagnitude = 0x7f;
constexpr int kMantissaOfF32 = 23;
constexpr int kBiasOfF32 = 127;
constexpr int kBiasOfF16 = 15;
constexpr std::int64_t kInfinity = 0x7f800000;
constexpr std::int64_t kNan = 0x7fc00000;
constexpr std::int64_t kPowerNan = 0xff;

}  // namespace

Value* ScalarEmitter::float8_value(DType dtype, Value* code) {
  const unsigned lanes = lanes_of(code);
  llvm::Type* single = with_lanes(b_.getFloatTy(), lanes);
  Value* wide = b_.CreateZExt(code, with_lanes(b_.getInt32Ty(), lanes));
  const auto is = [&](Value* bits, std::int64_t number) {
    return b_.CreateICmpEQ(bits, integers_like(bits, number));
  };
  if (dtype == DType::F8E8M0FNU) {
    Value* power = b_.CreateShl(wide, kMantissaOfF32);
    Value* least = integers_like(wide, 1 << (kMantissaOfF32 - 1));
    power = b_.CreateSelect(is(wide, 0), least, power);
    power = b_.CreateSelect(is(wide, kPowerNan), integers_like(wide, kNan), power);
    return b_.CreateBitCast(power, single);
  }
  const base::Float8Format format = base::float8_format(dtype);
  Value* sign = b_.CreateAnd(wide, kSign);
  Value* magnitude = b_.CreateAnd(wide, kMagnitude);
  if (dtype == DType::F8E5M2FNUZ) {
    const int shift = kMantissaOfF32 - format.mantissa;
    Value* normal = b_.CreateAdd(b_.CreateShl(magnitude, shift),
                                 integers_like(wide, (kBiasOfF32 - format.bias) << kMantissaOfF32));
    const double unit = std::ldexp(1.0, 1 - format.bias - format.mantissa);
    Value* subnormal =
        b_.CreateFMul(b_.CreateUIToFP(magnitude, single), llvm::ConstantFP::get(single, unit));
    Value* is_subnormal = b_.CreateICmpULT(magnitude, integers_like(wide, 1 << format.mantissa));
    Value* bits =
        b_.CreateSelect(is_subnormal, b_.CreateBitCast(subnormal, wide->getType()), normal);
    bits = b_.CreateOr(bits, b_.CreateShl(sign, 24));
    bits = b_.CreateSelect(is(wide, format.nan), integers_like(wide, kNan), bits);
    return b_.CreateBitCast(bits, single);
  }
  // An f16 has all their mantissas and exponents, up to its bias.
  constexpr int kMantissaOfF16 = 10;
  Value* narrow =
      b_.CreateOr(b_.CreateShl(sign, 8), b_.CreateShl(magnitude, kMantissaOfF16 - format.mantissa));
  narrow = b_.CreateTrunc(narrow, with_lanes(b_.getInt16Ty(), lanes));
  Value* value =
      b_.CreateFPExt(b_.CreateBitCast(narrow, with_lanes(b_.getHalfTy(), lanes)), single);
  if (format.bias == kBiasOfF16) return value;
  value = b_.CreateFMul(value,
                        llvm::ConstantFP::get(single, std::ldexp(1.0, kBiasOfF16 - format.bias)));
  Value* is_nan = format.one_zero ? is(wide, format.nan) : is(magnitude, format.nan);
  return b_.CreateSelect(is_nan, llvm::ConstantFP::getNaN(single), value);
}

Value* ScalarEmitter::float8_code(DType dtype, Value* value) {
  const unsigned lanes = lanes_of(value);
  llvm::Type* integer = with_lanes(b_.getInt32Ty(), lanes);
  llvm::Type* byte = storage_type(dtype, lanes);
  Value* bits = b_.CreateBitCast(value, integer);
  const auto same = [&](std::int64_t number) { return integers_like(bits, number); };
  if (dtype == DType::F8E8M0FNU) {
    constexpr std::int64_t kHalf = 1 << (kMantissaOfF32 - 1);
    Value* power = b_.CreateLShr(b_.CreateAdd(bits, same(kHalf)), kMantissaOfF32);
    // Below 2^-126 there is one more power of two, half of it.
    Value* least = b_.CreateZExt(b_.CreateICmpUGE(bits, same(kHalf + kHalf / 2)), integer);
    power = b_.CreateSelect(b_.CreateICmpULT(bits, same(2 * kHalf)), least, power);
    Value* has_power = b_.CreateICmpULT(b_.CreateSub(bits, same(1)), same(kInfinity - 1));
    return b_.CreateTrunc(b_.CreateSelect(has_power, power, same(kPowerNan)), byte);
  }
  const base::Float8Format format = base::float8_format(dtype);
  const int shift = kMantissaOfF32 - format.mantissa;
  Value* sign = b_.CreateAnd(b_.CreateLShr(bits, 24), kSign);
  Value* magnitude = b_.CreateAnd(bits, 0x7fffffff);
  // Normal numbers: a carry of the rounding may run into the exponent.
  Value* moved = b_.CreateSub(magnitude, same((kBiasOfF32 - format.bias) << kMantissaOfF32));
  Value* odd = b_.CreateAnd(b_.CreateLShr(moved, shift), 1);
  Value* normal =
      b_.CreateLShr(b_.CreateAdd(moved, b_.CreateAdd(odd, same((1 << (shift - 1)) - 1))), shift);
  // Subnormal ones: added to a number whose last place is theirs, they are rounded to it.
  const double unit = std::ldexp(1.0, kMantissaOfF32 + 1 - format.bias - format.mantissa);
  Value* unit_of = llvm::ConstantFP::get(value->getType(), unit);
  Value* size = b_.CreateBitCast(magnitude, value->getType());
  Value* subnormal = b_.CreateSub(b_.CreateBitCast(b_.CreateFAdd(size, unit_of), integer),
                                  b_.CreateBitCast(unit_of, integer));
  const std::int64_t least = (1 + kBiasOfF32 - format.bias) << kMantissaOfF32;
  Value* code = b_.CreateSelect(b_.CreateICmpULT(magnitude, same(least)), subnormal, normal);
  Value* beyond = b_.CreateICmpUGT(code, same(format.largest));
  if (format.one_zero) {
    Value* no_sign = b_.CreateOr(beyond, b_.CreateICmpEQ(code, same(0)));
    code = b_.CreateSelect(beyond, same(format.nan), code);
    return b_.CreateTrunc(b_.CreateOr(code, b_.CreateSelect(no_sign, same(0), sign)), byte);
  }
  code = b_.CreateSelect(beyond, same(format.beyond), code);
  if (format.beyond != format.nan)
    code = b_.CreateSelect(b_.CreateICmpUGT(magnitude, same(kInfinity)), same(format.nan), code);
  return b_.CreateTrunc(b_.CreateOr(code, sign), byte);
}

}  // namespace heddle::jit::cpu
