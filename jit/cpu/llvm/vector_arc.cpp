// Inverse trigonometric functions of f32 as straight-line vector code. Polynomials and bounds as in vector_math.cpp.
#include <array>
#include <limits>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <numbers>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// (atan(q)/q - 1) / q^2 in q^2 for |q| <= 1: 2^-31 of atan.
constexpr std::array<double, 10> kAtan = {
    -3.333332690e-01, 1.999967112e-01,  -1.427983300e-01, 1.105822340e-01,  -8.811090484e-02,
    6.741595389e-02,  -4.468992023e-02, 2.253985088e-02,  -7.317949733e-03, 1.113787531e-03};
/// (asin(s)/s - 1) / s^2 in s^2 for |s| <= 1/2: 2^-31 of asin.
constexpr std::array<double, 6> kAsin = {1.666665999e-01, 7.500504187e-02, 4.451695462e-02,
                                         3.180772378e-02, 1.443858315e-02, 3.751648180e-02};
/// pi/2 as a float, and what that leaves.
constexpr double kHalfPi = 0x1.921fb6p+0;
constexpr double kHalfPiLow = -0x1.777a5cp-25;

}  // namespace

/// high * pi/2 - x.
Value* VectorMath::from_half_pi(double high, Value* x) {
  Value* difference = b_.CreateFSub(real(high * kHalfPi, x), x);
  return b_.CreateFAdd(difference, real(high * kHalfPiLow, x));
}

/// atan(low / high) for 0 <= low <= high, not both 0 or infinite.
Value* VectorMath::arc_of_ratio(Value* low, Value* high) {
  Value* q = b_.CreateFDiv(low, high);
  Value* square = b_.CreateFMul(q, q);
  return fma(b_.CreateFMul(q, square), polynomial(kAtan, square), q);
}

/// 2 ulp.
Value* VectorMath::atan(Value* x) {
  Value* magnitude = absolute(x);
  Value* one = real(1, x);
  Value* steep = b_.CreateFCmpOGT(magnitude, one);
  Value* arc =
      arc_of_ratio(b_.CreateSelect(steep, one, magnitude), b_.CreateSelect(steep, magnitude, one));
  return copy_sign(b_.CreateSelect(steep, from_half_pi(1, arc), arc), x);
}

/// 2 ulp.
Value* VectorMath::atan2(Value* y, Value* x) {
  Value* width = absolute(x);
  Value* height = absolute(y);
  Value* steep = b_.CreateFCmpOGT(height, width);
  Value* low = b_.CreateSelect(steep, width, height);
  Value* high = b_.CreateSelect(steep, height, width);
  // Of two zeros the ratio is 0, of two infinities 1.
  Value* same = b_.CreateOr(b_.CreateFCmpOEQ(high, real(0, x)),
                            b_.CreateFCmpOEQ(low, llvm::ConstantFP::getInfinity(x->getType())));
  Value* one = real(1, x);
  Value* is_zero = b_.CreateFCmpOEQ(high, real(0, x));
  Value* arc = arc_of_ratio(b_.CreateSelect(same, b_.CreateSelect(is_zero, real(0, x), one), low),
                            b_.CreateSelect(same, one, high));
  arc = b_.CreateSelect(steep, from_half_pi(1, arc), arc);
  Value* left = b_.CreateICmpSLT(to_bits(x), integer(0, x));
  arc = copy_sign(b_.CreateSelect(left, from_half_pi(2, arc), arc), y);
  return b_.CreateSelect(b_.CreateFCmpUNO(x, y), llvm::ConstantFP::getNaN(x->getType()), arc);
}

/// asin(s) of s = |x| where that is at most 1/2, elsewhere of s = sqrt((1 - |x|) / 2), of which acos(|x|) is twice
/// the asin.
VectorMath::HalfArc VectorMath::half_arc(Value* x) {
  Value* magnitude = absolute(x);
  Value* large = b_.CreateFCmpOGT(magnitude, real(0.5, x));
  Value* rest = fma(magnitude, real(-0.5, x), real(0.5, x));
  Value* square = b_.CreateSelect(large, rest, b_.CreateFMul(magnitude, magnitude));
  Value* root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, rest);
  Value* s = b_.CreateSelect(large, root, magnitude);
  return {large, fma(b_.CreateFMul(s, square), polynomial(kAsin, square), s)};
}

/// 2 ulp.
Value* VectorMath::asin(Value* x) {
  const HalfArc half = half_arc(x);
  Value* whole = from_half_pi(1, b_.CreateFAdd(half.arc, half.arc));
  return copy_sign(b_.CreateSelect(half.large, whole, half.arc), x);
}

/// 2 ulp.
Value* VectorMath::acos(Value* x) {
  const HalfArc half = half_arc(x);
  Value* twice = b_.CreateFAdd(half.arc, half.arc);
  Value* left = b_.CreateFCmpOLT(x, real(0, x));
  Value* large = b_.CreateSelect(left, from_half_pi(2, twice), twice);
  return b_.CreateSelect(half.large, large, from_half_pi(1, copy_sign(half.arc, x)));
}

}  // namespace heddle::jit::cpu
