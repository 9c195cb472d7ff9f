// Trigonometric functions of f32 and f64 and their inverses as straight-line vector code. Polynomials and bounds as in vector_math.cpp.
#include <array>
#include <cstdint>
#include <limits>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <span>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// What depends on the type.
struct AngleConstants {
  std::array<double, 3>
      half_pi_parts;  ///< whose sum is pi/2; the first times a number of turns, less x, is exact
  double two_by_pi;
  /// Added and subtracted, it rounds to an integer, which the low bits of the sum then hold.
  double rounder;
  /// Below it, the reduction of sine and cosine keeps its accuracy.
  double most_reduced;
  /// (sin r - r) / r^3 and (cos r - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4.
  std::span<const double> sin;
  std::span<const double> cos;
  /// (atan(q)/q - 1) / q^2 in q^2 for |q| <= 1.
  std::span<const double> atan;
  /// (asin(s)/s - 1) / s^2 in s^2 for |s| <= 1/2.
  std::span<const double> asin;
  double half_pi;      ///< rounded
  double half_pi_low;  ///< what that leaves
};

// 2^-28, 2^-33, 2^-31 and 2^-31 of f32.
constexpr std::array<double, 3> kSin = {-1.666665454e-01, 8.332156060e-03, -1.951463257e-04};
constexpr std::array<double, 3> kCos = {4.166664555e-02, -1.388730986e-03, 2.443241222e-05};
constexpr std::array<double, 10> kAtan = {
    -3.333332690e-01, 1.999967112e-01,  -1.427983300e-01, 1.105822340e-01,  -8.811090484e-02,
    6.741595389e-02,  -4.468992023e-02, 2.253985088e-02,  -7.317949733e-03, 1.113787531e-03};
constexpr std::array<double, 6> kAsin = {1.666665999e-01, 7.500504187e-02, 4.451695462e-02,
                                         3.180772378e-02, 1.443858315e-02, 3.751648180e-02};
constexpr AngleConstants kAngles = {.half_pi_parts = {0x1.921fb4p+0, 0x1.4442dp-24, 0x1.846988p-48},
                                    .two_by_pi = 0x1.45f306p-1,
                                    .rounder = 0x1.8p23,
                                    .most_reduced = 1e5,
                                    .sin = kSin,
                                    .cos = kCos,
                                    .atan = kAtan,
                                    .asin = kAsin,
                                    .half_pi = 0x1.921fb6p+0,
                                    .half_pi_low = -0x1.777a5cp-25};

// 2^-57, 2^-63, 2^-57 and 2^-59 of f64, fitted as those of vector_doubles.cpp.
constexpr std::array<double, 6> kWideSin = {-0x1.5555555555548p-3,  0x1.111111110f7d5p-7,
                                            -0x1.a01a019bfe564p-13, 0x1.71de35680beb3p-19,
                                            -0x1.ae5e5aa60b48fp-26, 0x1.5d8fd18f244b5p-33};
constexpr std::array<double, 6> kWideCos = {0x1.555555555554bp-5,  -0x1.6c16c16c14f91p-10,
                                            0x1.a01a019c84285p-16, -0x1.27e4f7ea9ae8ap-22,
                                            0x1.1ee9d79150afap-29, -0x1.8fa484b3d649bp-37};
constexpr std::array<double, 20> kWideAtan = {
    -0x1.555555555554ep-2, 0x1.9999999997bd6p-3,  -0x1.24924923eee30p-3,  0x1.c71c7195a04fcp-4,
    -0x1.745d13013fae4p-4, 0x1.3b137477fc5d8p-4,  -0x1.110eb88f03fb0p-4,  0x1.e1c0184c1cfa3p-5,
    -0x1.ae70f1b2a2461p-5, 0x1.83160adb3ce44p-5,  -0x1.5a375064e8b29p-5,  0x1.2d4cf0618467ep-5,
    -0x1.ed620cf19b8f1p-6, 0x1.6c454df1079e8p-6,  -0x1.cee960d128e26p-7,  0x1.e1d2ff67e7de3p-8,
    -0x1.8458705d3447cp-9, 0x1.c1ed09885b62fp-11, -0x1.4b0612316e116p-13, 0x1.ce765a97a11a7p-17};
constexpr std::array<double, 13> kWideAsin = {
    0x1.5555555555565p-3, 0x1.333333332fdcap-4, 0x1.6db6db70fddbfp-5, 0x1.f1c71aed3ad4fp-6,
    0x1.6e8bd65746c89p-6, 0x1.1c4a79f07ababp-6, 0x1.ca13cf364b7dep-7, 0x1.75de26bb789cbp-7,
    0x1.5f6e291772f31p-7, 0x1.ff8f43c66b6b7p-9, 0x1.5c42c3ceff4bdp-6, -0x1.4e1e47d717575p-6,
    0x1.0855660432a5bp-5};
constexpr AngleConstants kWideAngles = {
    .half_pi_parts = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110},
    .two_by_pi = 0x1.45f306dc9c883p-1,
    .rounder = 0x1.8p52,
    .most_reduced = 0x1p30,
    .sin = kWideSin,
    .cos = kWideCos,
    .atan = kWideAtan,
    .asin = kWideAsin,
    .half_pi = 0x1.921fb54442d18p+0,
    .half_pi_low = 0x1.1a62633145c07p-54};

const AngleConstants& angles(Value* x) {
  return x->getType()->getScalarType()->isDoubleTy() ? kWideAngles : kAngles;
}

}  // namespace

/// high * pi/2 - x.
Value* VectorMath::from_half_pi(double high, Value* x) {
  Value* difference = b_.CreateFSub(real(high * angles(x).half_pi, x), x);
  return b_.CreateFAdd(difference, real(high * angles(x).half_pi_low, x));
}

/// atan(low / high) for 0 <= low <= high, not both 0 or infinite.
Value* VectorMath::arc_of_ratio(Value* low, Value* high) {
  Value* q = b_.CreateFDiv(low, high);
  Value* square = b_.CreateFMul(q, q);
  return fma(b_.CreateFMul(q, square), polynomial(angles(q).atan, square), q);
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
  return {large, fma(b_.CreateFMul(s, square), polynomial(angles(x).asin, square), s)};
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
  const AngleConstants& constants = angles(x);
  Value* magnitude = absolute(x);
  Value* rounder = real(constants.rounder, x);
  Value* shifted = fma(magnitude, real(constants.two_by_pi, x), rounder);
  Value* n = b_.CreateFSub(shifted, rounder);
  Value* r = magnitude;
  for (double part : constants.half_pi_parts) r = fma(n, real(-part, x), r);
  Value* square = b_.CreateFMul(r, r);
  Value* sin = fma(b_.CreateFMul(square, r), polynomial(constants.sin, square), r);
  Value* cos = fma(square, real(-0.5, x),
                   b_.CreateFMul(b_.CreateFMul(square, square), polynomial(constants.cos, square)));
  return {magnitude, to_bits(shifted), sin, b_.CreateFAdd(cos, real(1, x))};
}

/// 2 ulp; beyond 10^5, of f64 2^30, the C library's.
Value* VectorMath::sine(Value* x, bool cosine, const std::function<Value*(Value*)>& slow) {
  const Turned at = turned(x);
  Value* quadrant = cosine ? b_.CreateAdd(at.quadrant, integer(1, x)) : at.quadrant;
  Value* odd = b_.CreateICmpNE(b_.CreateAnd(quadrant, integer(1, x)), integer(0, x));
  const std::int64_t to_sign = is_wide(x) ? 62 : 30;
  Value* sign = b_.CreateShl(b_.CreateAnd(quadrant, integer(2, x)), integer(to_sign, x));
  if (!cosine) sign = b_.CreateXor(sign, sign_of(x));
  Value* fast = b_.CreateSelect(odd, at.cos, at.sin);
  return unless_far(x, at.magnitude, from_bits(b_.CreateXor(to_bits(fast), sign)), slow);
}

/// 3.1 ulp; beyond 10^5, of f64 2^30, the C library's.
Value* VectorMath::tangent(Value* x, const std::function<Value*(Value*)>& slow) {
  const Turned at = turned(x);
  Value* odd = b_.CreateICmpNE(b_.CreateAnd(at.quadrant, integer(1, x)), integer(0, x));
  Value* fast = b_.CreateFDiv(b_.CreateSelect(odd, b_.CreateFNeg(at.cos), at.sin),
                              b_.CreateSelect(odd, at.sin, at.cos));
  return unless_far(x, at.magnitude, from_bits(b_.CreateXor(to_bits(fast), sign_of(x))), slow);
}

Value* VectorMath::sign_of(Value* x) {
  const std::int64_t sign = is_wide(x) ? std::numeric_limits<std::int64_t>::min()
                                       : std::numeric_limits<std::int32_t>::min();
  return b_.CreateAnd(to_bits(x), integer(sign, x));
}

/// `fast`, but slow(x) in lanes where |x| is finite and too large to be reduced.
Value* VectorMath::unless_far(Value* x, Value* magnitude, Value* fast,
                              const std::function<Value*(Value*)>& slow) {
  Value* beyond =
      b_.CreateAnd(b_.CreateFCmpOGT(magnitude, real(angles(x).most_reduced, x)),
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
