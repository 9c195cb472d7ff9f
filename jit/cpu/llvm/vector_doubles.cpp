// Functions of f64 as straight-line vector code. Every width of vector computes the same numbers: what AVX-512 has of its own
// is used only where it rounds as the rest does.
//
// Polynomials are minimax fits, by Remez's exchange in 240 bits, of the quantity and interval named beside them. Bounds are
// over all of f64 and stated in units in the last place; a test measures them. Subnormals, signed zeros, infinities and NaN
// come out as IEEE 754 and C ask.
#include <array>
#include <cstdint>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <span>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// log2(e) and ln(2), and what the doubles leave.
constexpr double kDoubleLog2E = 0x1.71547652b82fep+0;
constexpr double kDoubleLog2ELow = 0x1.777d0ffda0d24p-56;
constexpr double kDoubleLn2 = 0x1.62e42fefa39efp-1;
constexpr double kDoubleLn2Low = 0x1.abc9e3b39803fp-56;
/// Added and subtracted, it rounds to an integer, which the low bits of the sum then hold.
constexpr double kDoubleRounder = 0x1.8p52;
constexpr std::int64_t kDoubleMantissaBits = 52;
constexpr std::int64_t kDoubleBias = 1023;

/// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2: 2^-57 of e^r, and 2^-61 of e^r - 1.
constexpr std::array<double, 10> kDoubleExp = {
    0x1.000000000000ap-1,  0x1.55555555554fap-3,  0x1.555555555087cp-5,  0x1.1111111127ba3p-7,
    0x1.6c16c1842b090p-10, 0x1.a01a012a7b01dp-13, 0x1.a0199a08b200ap-16, 0x1.71df24f5693fbp-19,
    0x1.28ad76aebbfaep-22, 0x1.ad800d3cf8c93p-26};
constexpr std::array<double, 11> kDoubleExpm1 = {
    0x1.0000000000000p-1,  0x1.5555555555559p-3,  0x1.555555555553fp-5,  0x1.111111110f6dap-7,
    0x1.6c16c16c1f07cp-10, 0x1.a01a01afd3dafp-13, 0x1.a01a017bc576ap-16, 0x1.71ddf87ec9118p-19,
    0x1.27e5362e16076p-22, 0x1.af5e74ed0997dp-26, 0x1.1ee88524211c3p-29};
/// (2^r - 1) / r for |r| <= 1/2: 2^-58 of 2^r.
constexpr std::array<double, 11> kDoubleExp2 = {
    0x1.62e42fefa39efp-1,  0x1.ebfbdff82c5a4p-3,  0x1.c6b08d7049fe8p-5,  0x1.3b2ab6fba011ap-7,
    0x1.5d87fe78cd6d3p-10, 0x1.4309130ed8cccp-13, 0x1.ffcbfba97f698p-17, 0x1.62bfc79d4e9dbp-20,
    0x1.b5267ce36e998p-24, 0x1.e61b4f9263718p-28, 0x1.e79bb14076d24p-32};
/// 2 (atanh(s) - s) / s^3 in s^2 for |s| <= (sqrt(2) - 1) / (sqrt(2) + 1): 2^-59 of atanh.
constexpr std::array<double, 7> kDoubleAtanh = {
    0x1.5555555555593p-1, 0x1.999999997fb85p-2, 0x1.24924942167c4p-2, 0x1.c71c51e6e322dp-3,
    0x1.746646ad7bb0fp-3, 0x1.39a0e30807e01p-3, 0x1.2f0e66470aa20p-3};
/// 2 log2(e) and a third of it, and what the doubles leave.
constexpr double kTwiceLog2E = 0x1.71547652b82fep+1;
constexpr double kTwiceLog2ELow = 0x1.777d0ffda0d24p-55;
constexpr double kTwoThirdsLog2E = 0x1.ec709dc3a03fdp-1;
constexpr double kTwoThirdsLog2ELow = 0x1.d27f05548af0cp-55;
/// (2 log2(e) atanh(s)/s - 2 log2(e) (1 + s^2/3)) / s^4 in s^2, at Chebyshev's nodes, for s as above: 2^-70 of log2.
constexpr std::array<double, 8> kPowerLog2 = {
    0x1.2776c50ef9bfep-1, 0x1.a61762a7adfa8p-2, 0x1.484b13d79c410p-2, 0x1.0c9a84bf4b885p-2,
    0x1.c68f2f05fc1dap-3, 0x1.89fed19a09519p-3, 0x1.59e09fb241c17p-3, 0x1.5a5fb73c05e36p-3};
/// erf(x)/x - 1 in x^2 for |x| <= 1: 2^-57; ln(erfc x) on [1, 6]: 2^-59 of erf.
constexpr std::array<double, 12> kDoubleErfSmall = {
    0x1.06eba8214db68p-3,  -0x1.812746b0379c2p-2,  0x1.ce2f21a041018p-4,  -0x1.b82ce312062bcp-6,
    0x1.565bccfa9a825p-8,  -0x1.c02db072f3fe0p-11, 0x1.f9a2bf73f0c68p-14, -0x1.f4ca94990cb86p-17,
    0x1.b9827b1885f9bp-20, -0x1.5c16e30fb0d45p-23, 0x1.d784936618cc2p-27, -0x1.acdff90b8ebd8p-31};
constexpr std::array<double, 19> kDoubleErfLarge = {
    -0x1.8208713ee4eb9p-23, -0x1.20dd56287b4cap+0,  -0x1.45f42b938f977p-1,  -0x1.a4da47dace487p-4,
    0x1.3893667bfe1c7p-6,   0x1.262f0708fc65dp-12,  -0x1.cfc0ce598d00bp-10, 0x1.50320e479fc1fp-11,
    -0x1.786926036bfbdp-15, -0x1.2705cf5c5e92bp-14, 0x1.79b23d659cf4cp-15,  -0x1.14fbb0c1b04d6p-16,
    0x1.224c7d55a59e0p-18,  -0x1.c88071570f94ap-21, 0x1.0dda197ed037ap-23,  -0x1.d4053b305d3e7p-27,
    0x1.19d09cfd68847p-30,  -0x1.a5a6d047100a2p-35, 0x1.27471df4e00cap-40};

}  // namespace

/// 2^n of a sum n + 1023 + kDoubleRounder, n in [-1022, 1024]; that of 1024 is infinite.
Value* VectorMath::power_of_two(Value* shifted) {
  return from_bits(b_.CreateShl(to_bits(shifted), integer(kDoubleMantissaBits, shifted)));
}

/// x * 2^exponent for an x in [1/2, 2] and an integral exponent in [-1100, 1100], rounded once.
Value* VectorMath::scale_wide(Value* x, Value* exponent) {
  if (!takes_avx512(x)) {
    Value* rounder = real(kDoubleRounder + kDoubleBias, x);
    Value* shifted = fma(exponent, real(0.5, x), rounder);
    Value* rest = b_.CreateFSub(exponent, b_.CreateFSub(shifted, rounder));
    Value* halfway = b_.CreateFMul(x, power_of_two(shifted));
    return b_.CreateFMul(halfway, power_of_two(b_.CreateFAdd(rest, rounder)));
  }
  return each_machine_vector(x, exponent, [&](Value* part, Value* power) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_pd_512, {},
                              {part, power, part, b_.getInt8(0xff), b_.getInt32(4)});
  });
}

/// e^(x - n ln(2)).
Value* VectorMath::wide_exp_near_zero(Value* x, Value* n) {
  // The first difference is exact.
  Value* r = fma(n, real(-kDoubleLn2Low, x), fma(n, real(-kDoubleLn2, x), x));
  Value* rest = fma(b_.CreateFMul(r, r), polynomial(kDoubleExp, r), r);
  return b_.CreateFAdd(rest, real(1, x));
}

/// 1.1 ulp.
Value* VectorMath::wide_exp(Value* x) {
  constexpr double kVanishing = -745.1332191019412;  // the logarithm of half the least subnormal
  return vanishing(x, kVanishing, [this](Value* given) {
    Value* bounded = at_most(given, 710);
    Value* rounder = real(kDoubleRounder, bounded);
    Value* n = b_.CreateFSub(fma(bounded, real(kDoubleLog2E, bounded), rounder), rounder);
    return scale_wide(wide_exp_near_zero(bounded, n), n);
  });
}

/// 1.1 ulp.
Value* VectorMath::wide_exp2(Value* x) {
  return vanishing(x, -1075, [this](Value* given) {
    Value* bounded = at_most(given, 1025);
    Value* rounder = real(kDoubleRounder, bounded);
    Value* n = b_.CreateFSub(b_.CreateFAdd(bounded, rounder), rounder);
    Value* r = b_.CreateFSub(bounded, n);
    return scale_wide(fma(r, polynomial(kDoubleExp2, r), real(1, bounded)), n);
  });
}

Value* VectorMath::wide_quarter_expm1(Value* x) {
  Value* bounded = clamp(x, -40, 710.6);
  constexpr double kQuarter = -2;
  Value* rounder = real(kDoubleRounder + kDoubleBias + kQuarter, x);
  Value* shifted = fma(bounded, real(kDoubleLog2E, x), rounder);
  Value* n = b_.CreateFSub(shifted, rounder);
  Value* r = fma(n, real(-kDoubleLn2Low, x), fma(n, real(-kDoubleLn2, x), bounded));
  Value* p = fma(b_.CreateFMul(r, r), polynomial(kDoubleExpm1, r), r);
  Value* quarter = power_of_two(shifted);
  return fma(p, quarter, b_.CreateFSub(quarter, real(0.25, x)));
}

struct VectorMath::WideParts {
  Value* exponent;  ///< e, as a double
  Value* f;         ///< x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2))
};

VectorMath::WideParts VectorMath::wide_parts(Value* x) {
  constexpr std::int64_t kRootHalf = 0x3fe6a09e667f3bcd;
  constexpr std::int64_t kMantissa = (std::int64_t{1} << kDoubleMantissaBits) - 1;
  constexpr std::int64_t kTwoTo52 = 0x4330000000000000;
  constexpr std::int64_t kAbove = 1024;  // added to exponents, it makes them positive
  Value* subnormal = b_.CreateFCmpOLT(x, real(0x1p-1022, x));
  Value* normal = b_.CreateSelect(subnormal, b_.CreateFMul(x, real(0x1p54, x)), x);
  Value* bits = b_.CreateSub(to_bits(normal), integer(kRootHalf, x));
  // The exponent becomes the low bits of a number whose unit is 1.
  Value* biased = b_.CreateLShr(b_.CreateAdd(bits, integer(kAbove << kDoubleMantissaBits, x)),
                                integer(kDoubleMantissaBits, x));
  Value* e = from_bits(b_.CreateOr(biased, integer(kTwoTo52, x)));
  constexpr double kUnits = 0x1p52 + kAbove;
  e = b_.CreateFSub(e, b_.CreateSelect(subnormal, real(kUnits + 54, x), real(kUnits, x)));
  Value* mantissa = b_.CreateAnd(bits, integer(kMantissa, x));
  return {e, b_.CreateFSub(from_bits(b_.CreateAdd(mantissa, integer(kRootHalf, x))), real(1, x))};
}

struct VectorMath::WideReduced {
  Value* exponent;  ///< of the parts
  Value* f;
  Value* rest;  ///< log(1 + f) = f + rest
};

/// With s = f / (2 + f), log(1 + f) = 2 atanh(s) = f - f^2/2 + s (f^2/2 + 2 atanh(s)/s - 2).
/// Source: Tang, "Table-driven implementation of the logarithm function in IEEE floating-point arithmetic" (1990), for what lies
/// near 1.
VectorMath::WideReduced VectorMath::wide_reduce_log(Value* x) {
  const auto [e, f] = wide_parts(x);
  Value* s = b_.CreateFDiv(f, b_.CreateFAdd(f, real(2, x)));
  Value* square = b_.CreateFMul(s, s);
  Value* half = b_.CreateFMul(b_.CreateFMul(f, real(0.5, x)), f);
  Value* inner = fma(square, polynomial(kDoubleAtanh, square), half);
  return {e, f, fma(s, inner, b_.CreateFNeg(half))};
}

/// 1 ulp.
Value* VectorMath::wide_log(Value* x) {
  const WideReduced reduced = wide_reduce_log(x);
  Value* low = fma(reduced.exponent, real(kDoubleLn2Low, x), reduced.rest);
  Value* sum = fma(reduced.exponent, real(kDoubleLn2, x), b_.CreateFAdd(reduced.f, low));
  return log_limits(x, sum);
}

/// 1.5 ulp.
Value* VectorMath::wide_log2(Value* x) {
  const WideReduced reduced = wide_reduce_log(x);
  // f log2(e) in two parts: the error of the first is as large as the result's own.
  Value* low =
      fma(reduced.rest, real(kDoubleLog2E, x), b_.CreateFMul(reduced.f, real(kDoubleLog2ELow, x)));
  Value* sum = fma(reduced.f, real(kDoubleLog2E, x), low);
  return log_limits(x, b_.CreateFAdd(reduced.exponent, sum));
}

/// 1.5 ulp.
Value* VectorMath::wide_log1p(Value* x) {
  Value* u = b_.CreateFAdd(x, real(1, x));
  Value* lost = b_.CreateFSub(x, b_.CreateFSub(u, real(1, x)));
  Value* tiny = b_.CreateFCmpOLT(absolute(x), real(0x1p-60, x));
  const WideReduced reduced = wide_reduce_log(u);
  Value* low = fma(reduced.exponent, real(kDoubleLn2Low, x), reduced.rest);
  low = b_.CreateFAdd(low, b_.CreateFDiv(lost, u));
  Value* sum = fma(reduced.exponent, real(kDoubleLn2, x), b_.CreateFAdd(reduced.f, low));
  return b_.CreateSelect(tiny, x, log_limits(u, sum));
}

/// 1.5 ulp: near 0 as x times a polynomial, elsewhere by the logarithm of what is left to 1.
Value* VectorMath::wide_erf(Value* x) {
  Value* magnitude = absolute(x);
  Value* small = fma(x, polynomial(kDoubleErfSmall, b_.CreateFMul(x, x)), x);
  // Beyond 6 less than half a unit is left.
  Value* logarithm = polynomial(kDoubleErfLarge, at_most(magnitude, 6));
  Value* rounder = real(kDoubleRounder + kDoubleBias, x);
  Value* shifted = fma(logarithm, real(kDoubleLog2E, x), rounder);
  Value* near = wide_exp_near_zero(logarithm, b_.CreateFSub(shifted, rounder));
  Value* large = fma(b_.CreateFNeg(near), power_of_two(shifted), real(1, x));
  return b_.CreateSelect(b_.CreateFCmpOLT(magnitude, real(1, x)), small, copy_sign(large, x));
}

/// The sum of two numbers of which the first is larger or 0, and what it leaves.
VectorMath::WideSum VectorMath::wide_sum(Value* large, Value* small) {
  Value* high = b_.CreateFAdd(large, small);
  return {high, b_.CreateFSub(small, b_.CreateFSub(high, large))};
}

/// A product and what it leaves.
VectorMath::WideSum VectorMath::wide_product(Value* a, Value* b) {
  Value* high = b_.CreateFMul(a, b);
  return {high, fma(a, b, b_.CreateFNeg(high))};
}

/// log2 of a positive finite x, within 2^-64 of itself: with s = f / (2 + f), 2 log2(e) atanh(s), of whose series the first two
/// terms are computed in two doubles each.
VectorMath::WideSum VectorMath::wide_log2_in_two(Value* x) {
  const auto [e, f] = wide_parts(x);
  const WideSum divisor = wide_sum(real(2, x), f);
  Value* inverse = b_.CreateFDiv(real(1, x), divisor.high);
  WideSum s{b_.CreateFMul(f, inverse), nullptr};
  Value* left = fma(b_.CreateFNeg(s.high), divisor.high, f);
  s.low = b_.CreateFMul(fma(b_.CreateFNeg(s.high), divisor.low, left), inverse);
  WideSum square = wide_product(s.high, s.high);
  square.low = fma(b_.CreateFAdd(s.high, s.high), s.low, square.low);
  WideSum second = wide_product(square.high, real(kTwoThirdsLog2E, x));
  second.low = fma(square.high, real(kTwoThirdsLog2ELow, x), second.low);
  second.low = fma(square.low, real(kTwoThirdsLog2E, x), second.low);
  Value* others =
      b_.CreateFMul(b_.CreateFMul(square.high, square.high), polynomial(kPowerLog2, square.high));
  const WideSum behind = wide_sum(second.high, others);
  WideSum ratio = wide_sum(real(kTwiceLog2E, x), behind.high);
  Value* low = b_.CreateFAdd(behind.low, b_.CreateFAdd(second.low, real(kTwiceLog2ELow, x)));
  ratio.low = b_.CreateFAdd(ratio.low, low);
  WideSum log = wide_product(s.high, ratio.high);
  log.low = fma(s.high, ratio.low, fma(s.low, ratio.high, log.low));
  WideSum sum = wide_sum(e, log.high);
  sum.low = b_.CreateFAdd(sum.low, log.low);
  return sum;
}

/// 0.8 ulp: 2^(y log2|x|), whose exponent is the sum of two doubles.
Value* VectorMath::wide_power(Value* x, Value* y) {
  // A product that is contracted with a sum leaves another rest.
  const llvm::IRBuilderBase::FastMathFlagGuard guard(b_);
  b_.clearFastMathFlags();
  constexpr double kMost = 1100;
  Value* magnitude = absolute(x);
  const WideSum log = wide_log2_in_two(magnitude);
  Value* infinity = llvm::ConstantFP::getInfinity(x->getType());
  Value* high = b_.CreateSelect(b_.CreateFCmpOEQ(magnitude, infinity), infinity, log.high);
  high = b_.CreateSelect(b_.CreateFCmpOEQ(magnitude, real(0, x)), b_.CreateFNeg(infinity), high);
  const WideSum product = wide_product(y, high);
  Value* near = b_.CreateFCmpOLT(absolute(product.high), real(kMost, x));
  Value* exponent = clamp(product.high, -kMost, kMost);
  Value* low = b_.CreateSelect(near, fma(y, log.low, product.low), real(0, x));
  Value* rounder = real(kDoubleRounder, x);
  Value* n = b_.CreateFSub(b_.CreateFAdd(exponent, rounder), rounder);
  Value* r = b_.CreateFSub(exponent, n);
  // 2^r with the first term in two doubles: half of what is between two doubles below 1 would show twice.
  const WideSum first = wide_product(r, real(kDoubleLn2, x));
  Value* others = polynomial(std::span(kDoubleExp2).subspan(1), r);
  Value* rest = fma(b_.CreateFMul(r, r), others, fma(r, real(kDoubleLn2Low, x), first.low));
  const WideSum near_one = wide_sum(real(1, x), first.high);
  Value* power = b_.CreateFAdd(near_one.high, rest);
  rest = fma(b_.CreateFMul(low, real(kDoubleLn2, x)), power, b_.CreateFAdd(near_one.low, rest));
  return power_limits(x, y, scale_wide(b_.CreateFAdd(near_one.high, rest), n));
}

}  // namespace heddle::jit::cpu
