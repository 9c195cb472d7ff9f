// Trigonometric functions of f32 and their inverses as straight-line vector code. Polynomials and bounds as in vector_math.cpp.
#include <array>
#include <limits>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

// pi/2 in parts of 24 bits.
constexpr double kHalfPi1 = 0x1.921fb4p+0;
constexpr double kHalfPi2 = 0x1.4442dp-24;
constexpr double kHalfPi3 = 0x1.846988p-48;
constexpr double kTwoByPi = 0x1.45f306p-1;
/// Added and subtracted, it rounds to an integer, which the low bits of the sum then hold.
constexpr double kTurnRounder = 0x1.8p23;
/// Below it, the reduction of sine and cosine keeps its accuracy.
constexpr double kMostReduced = 1e5;
/// (sin r - r) / r^3 and (cos r - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4: 2^-28 and 2^-33.
constexpr std::array<double, 3> kSin = {-1.666665454e-01, 8.332156060e-03, -1.951463257e-04};
constexpr std::array<double, 3> kCos = {4.166664555e-02, -1.388730986e-03, 2.443241222e-05};
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
  Value* one = real(1, x);
  Value* is_zero = b_.CreateFCmpOEQ(high, real(0, x));
  Value* same =
      b_.CreateOr(is_zero, b_.CreateFCmpOEQ(low, llvm::ConstantFP::getInfinity(x->getType())));
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

/// Sine and cosine of the rest that |x| leaves of a number of quarter turns.
struct VectorMath::Turned {
  Value* magnitude;
  Value* quadrant;  ///< the number of quarter turns, in its low bits
  Value* sin;
  Value* cos;
};

VectorMath::Turned VectorMath::turned(Value* x) {
  Value* magnitude = absolute(x);
  Value* rounder = real(kTurnRounder, x);
  Value* shifted = fma(magnitude, real(kTwoByPi, x), rounder);
  Value* n = b_.CreateFSub(shifted, rounder);
  Value* r = fma(n, real(-kHalfPi1, x), magnitude);
  r = fma(n, real(-kHalfPi2, x), r);
  r = fma(n, real(-kHalfPi3, x), r);
  Value* square = b_.CreateFMul(r, r);
  Value* sin = fma(b_.CreateFMul(square, r), polynomial(kSin, square), r);
  Value* cos = fma(square, real(-0.5, x),
                   b_.CreateFMul(b_.CreateFMul(square, square), polynomial(kCos, square)));
  return {magnitude, to_bits(shifted), sin, b_.CreateFAdd(cos, real(1, x))};
}

/// 2 ulp; beyond 10^5 the C library's.
Value* VectorMath::sine(Value* x, bool cosine, const std::function<Value*(Value*)>& slow) {
  const Turned at = turned(x);
  Value* quadrant = cosine ? b_.CreateAdd(at.quadrant, integer(1, x)) : at.quadrant;
  Value* odd = b_.CreateICmpNE(b_.CreateAnd(quadrant, integer(1, x)), integer(0, x));
  Value* sign = b_.CreateShl(b_.CreateAnd(quadrant, integer(2, x)), integer(30, x));
  if (!cosine) sign = b_.CreateXor(sign, sign_of(x));
  Value* fast = b_.CreateSelect(odd, at.cos, at.sin);
  return unless_far(x, at.magnitude, from_bits(b_.CreateXor(to_bits(fast), sign)), slow);
}

/// 3.1 ulp; beyond 10^5 the C library's.
Value* VectorMath::tangent(Value* x, const std::function<Value*(Value*)>& slow) {
  const Turned at = turned(x);
  Value* odd = b_.CreateICmpNE(b_.CreateAnd(at.quadrant, integer(1, x)), integer(0, x));
  Value* fast = b_.CreateFDiv(b_.CreateSelect(odd, b_.CreateFNeg(at.cos), at.sin),
                              b_.CreateSelect(odd, at.sin, at.cos));
  return unless_far(x, at.magnitude, from_bits(b_.CreateXor(to_bits(fast), sign_of(x))), slow);
}

Value* VectorMath::sign_of(Value* x) {
  return b_.CreateAnd(to_bits(x), integer(std::numeric_limits<std::int32_t>::min(), x));
}

/// `fast`, but slow(x) in lanes where |x| is finite and too large to be reduced.
Value* VectorMath::unless_far(Value* x, Value* magnitude, Value* fast,
                              const std::function<Value*(Value*)>& slow) {
  Value* beyond =
      b_.CreateAnd(b_.CreateFCmpOGT(magnitude, real(kMostReduced, x)),
                   b_.CreateFCmpOLT(magnitude, llvm::ConstantFP::getInfinity(x->getType())));
  Value* any = lanes_of(x) == 0 ? beyond : b_.CreateOrReduce(beyond);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* far = llvm::BasicBlock::Create(b_.getContext(), "far", function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "far.end", function);
  b_.CreateCondBr(any, far, after);
  b_.SetInsertPoint(far);
  Value* exact = b_.CreateSelect(beyond, slow(x), fast);
  llvm::BasicBlock* far_end = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* result = b_.CreatePHI(x->getType(), 2);
  result->addIncoming(fast, before);
  result->addIncoming(exact, far_end);
  return result;
}

}  // namespace heddle::jit::cpu
