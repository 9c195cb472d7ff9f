// Powers of f32 as straight-line vector code, in f64: 2^(y log2|x|). Polynomials and bounds as in vector_math.cpp.
#include <array>
#include <cstdint>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// log2(1 + f) / f for 1 + f in [sqrt(1/2), sqrt(2)]: 2^-38 of log2.
constexpr std::array<double, 14> kWideLog2 = {
    1.44269504088657441e+00,  -7.21347520327543790e-01, 4.80898348802927256e-01,
    -3.60673793138711007e-01, 2.88538795723301544e-01,  -2.40446433496518480e-01,
    2.06107123140762544e-01,  -1.80436752500698128e-01, 1.60216667968700904e-01,
    -1.42498620678229215e-01, 1.30275593748413104e-01,  -1.34629343988765027e-01,
    1.32512140525616717e-01,  -6.97392236457873849e-02};
/// 2^r for |r| <= 1/2: 2^-34.
constexpr std::array<double, 8> kWideExp2 = {9.99999999961681985e-01, 6.93147180728445611e-01,
                                             2.40226511981572077e-01, 5.55041035345320843e-02,
                                             9.61802725371136910e-03, 1.33339225590775254e-03,
                                             1.54692911308010610e-04, 1.52019226419755621e-05};

constexpr std::int64_t kMantissaBits = 52;
constexpr std::int64_t kMantissa = (std::int64_t{1} << kMantissaBits) - 1;
/// The bits of sqrt(1/2) and of 2^52.
constexpr std::int64_t kRootHalf = 0x3fe6a09e667f3bcd;
constexpr std::int64_t kUnits = 0x4330000000000000;
/// Added to exponents, it makes them positive.
constexpr std::int64_t kBias = 1024;
/// Added and subtracted, it rounds to an integer, which the low bits of the sum then hold.
constexpr double kWideRounder = 0x1.8p52;
/// Powers of two beyond it are 0 or infinite as f32.
constexpr double kMostExponent = 200;

}  // namespace

/// log2 of an f64 that was a positive finite f32.
Value* VectorMath::rough_log2(Value* x) {
  llvm::Type* type = x->getType();
  llvm::Type* bits_type = type->getWithNewType(b_.getInt64Ty());
  const auto bits = [&](std::int64_t value) {
    return llvm::ConstantInt::getSigned(bits_type, value);
  };
  Value* above = b_.CreateSub(b_.CreateBitCast(x, bits_type), bits(kRootHalf));
  // The exponent becomes the low bits of a number whose unit is 1.
  Value* biased =
      b_.CreateLShr(b_.CreateAdd(above, bits(kBias << kMantissaBits)), bits(kMantissaBits));
  Value* exponent = b_.CreateFSub(b_.CreateBitCast(b_.CreateOr(biased, bits(kUnits)), type),
                                  real(0x1p52 + static_cast<double>(kBias), x));
  Value* m = b_.CreateAdd(b_.CreateAnd(above, bits(kMantissa)), bits(kRootHalf));
  Value* f = b_.CreateFSub(b_.CreateBitCast(m, type), real(1, x));
  return fma(f, polynomial(kWideLog2, f), exponent);
}

/// 2^x of an f64, as an f32 rounded once.
Value* VectorMath::narrow_exp2(Value* x) {
  x = clamp(x, -kMostExponent, kMostExponent);
  Value* shifted = b_.CreateFAdd(x, real(kWideRounder, x));
  Value* r = b_.CreateFSub(x, b_.CreateFSub(shifted, real(kWideRounder, x)));
  llvm::Type* bits_type = x->getType()->getWithNewType(b_.getInt64Ty());
  Value* exponent = b_.CreateShl(b_.CreateBitCast(shifted, bits_type),
                                 llvm::ConstantInt::get(bits_type, kMantissaBits));
  Value* bits = b_.CreateAdd(b_.CreateBitCast(polynomial(kWideExp2, r), bits_type), exponent);
  return b_.CreateFPTrunc(b_.CreateBitCast(bits, x->getType()),
                          x->getType()->getWithNewType(b_.getFloatTy()));
}

/// 0.6 ulp.
Value* VectorMath::power(Value* x, Value* y) {
  llvm::Type* wide = x->getType()->getWithNewType(b_.getDoubleTy());
  Value* magnitude = absolute(x);
  Value* log = rough_log2(b_.CreateFPExt(magnitude, wide));
  log = b_.CreateSelect(b_.CreateFCmpOEQ(magnitude, real(0, x)),
                        llvm::ConstantFP::getInfinity(wide, /*Negative=*/true), log);
  llvm::Constant* infinity = llvm::ConstantFP::getInfinity(x->getType());
  log = b_.CreateSelect(b_.CreateFCmpOEQ(magnitude, infinity), llvm::ConstantFP::getInfinity(wide),
                        log);
  return power_limits(x, y, narrow_exp2(b_.CreateFMul(b_.CreateFPExt(y, wide), log)));
}

/// |x|^y as x^y, with what 0, 1, infinities and NaN make, as C has it.
Value* VectorMath::power_limits(Value* x, Value* y, Value* result) {
  Value* zero = real(0, x);
  Value* one = real(1, x);
  Value* magnitude = absolute(x);
  llvm::Constant* infinity = llvm::ConstantFP::getInfinity(x->getType());
  Value* y_is_zero = b_.CreateFCmpOEQ(y, zero);
  result = b_.CreateSelect(b_.CreateOr(y_is_zero, b_.CreateFCmpOEQ(magnitude, one)), one, result);
  const auto is_integer = [&](Value* v) {
    return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, v), v);
  };
  Value* integral = is_integer(y);
  Value* odd = b_.CreateAnd(integral, b_.CreateNot(is_integer(b_.CreateFMul(y, real(0.5, y)))));
  result = b_.CreateSelect(odd, copy_sign(result, x), result);
  Value* negative = b_.CreateAnd(b_.CreateFCmpOLT(x, zero), b_.CreateFCmpONE(magnitude, infinity));
  Value* undefined =
      b_.CreateOr(b_.CreateFCmpUNO(x, y), b_.CreateAnd(negative, b_.CreateNot(integral)));
  Value* defined = b_.CreateOr(y_is_zero, b_.CreateFCmpOEQ(x, one));
  return b_.CreateSelect(b_.CreateAnd(undefined, b_.CreateNot(defined)),
                         llvm::ConstantFP::getNaN(x->getType()), result);
}

}  // namespace heddle::jit::cpu
