// 8-bit floats as LLVM IR. No step takes or gives a subnormal f32 but the least number of f8e8m0fnu, so that a caller's way of
// treating these changes nothing.
#include <cmath>
#include <limits>
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
  // An f16 has the mantissas and exponents of the others, but for its bias.
  const base::Float8Format format = base::float8_format(dtype);
  if (dtype == DType::F8E5M2FNUZ) {
    Value* sign = b_.CreateAnd(wide, kSign);
    Value* magnitude = b_.CreateAnd(wide, kMagnitude);
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
  return value_by_f16(code, format, single);
}

Value* ScalarEmitter::value_by_f16(Value* code, const base::Float8Format& format,
                                   llvm::Type* single) {
  constexpr int kMantissaOfF16 = 10;
  constexpr std::int64_t kTopOfExponent = 0x4000;  // with all below it an infinity or NaN of f16
  const int shift = kMantissaOfF16 - format.mantissa;
  // The sign is where it belongs, and, by its extension, in the exponent as well.
  Value* bits = b_.CreateSExt(code, with_lanes(b_.getInt16Ty(), lanes_of(code)));
  bits = b_.CreateShl(bits, static_cast<std::uint64_t>(shift));
  const auto same = [&](std::int64_t number) { return integers_like(bits, number); };
  const bool is_f16 = format.bias == kBiasOfF16;
  if (!is_f16) {
    bits = b_.CreateAnd(bits, same(~kTopOfExponent));
    if (format.one_zero) {
      Value* is_nan = b_.CreateICmpEQ(bits, same(std::numeric_limits<std::int16_t>::min()));
      bits = b_.CreateSelect(is_nan, same(kTopOfExponent | 0x3e00), bits);
    } else {
      // Only the largest magnitude, NaN, carries into that bit when its last place is added.
      Value* carried = b_.CreateAdd(bits, same(std::int64_t{1} << shift));
      bits = b_.CreateOr(bits, b_.CreateAnd(carried, same(kTopOfExponent)));
    }
  }
  Value* value =
      b_.CreateFPExt(b_.CreateBitCast(bits, with_lanes(b_.getHalfTy(), lanes_of(code))), single);
  if (is_f16) return value;
  return b_.CreateFMul(value,
                       llvm::ConstantFP::get(single, std::ldexp(1.0, kBiasOfF16 - format.bias)));
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
