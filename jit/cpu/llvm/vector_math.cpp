// Functions as straight-line vector code: what f32 and f64 share, and those of f32.
//
// Polynomials are minimax fits of the quantity and interval named beside them, relative to the
// function's value. Bounds are over all floats and stated in units in the last place; a test measures
// them. Subnormals, signed zeros, infinities and NaN come out as IEEE 754 and C ask.
#include <array>
#include <cmath>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <vector>

#include "jit/cpu/llvm/math_tables.h"
#include "jit/cpu/llvm/opaque.h"
#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// log2(e), and what the float leaves.
constexpr double kLog2E = 0x1.715476p+0;
constexpr double kLog2ELow = 0x1.4ae0cp-26;
// ln 2 in parts of 24 bits.
constexpr double kLn2High = 0x1.62e43p-1;
constexpr double kLn2Low = -0x1.05c61p-29;
/// Added and subtracted, it rounds to an integer, which the low bits of the sum then hold.
constexpr double kRounder = 0x1.8p23;

/// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2: 2^-28 of e^r; five terms more exactly for expm1.
constexpr std::array<double, 5> kExp = {5.000000095e-01, 1.666651884e-01, 4.166620583e-02,
                                        8.368889558e-03, 1.395048916e-03};
constexpr std::array<double, 6> kExpm1 = {5.000000044e-01, 1.666666637e-01, 4.166636091e-02,
                                          8.333389372e-03, 1.394062765e-03, 1.984587709e-04};
/// The first for |r| <= ln(2): 2^-30 of e^r.
constexpr std::array<double, 7> kExpWide = {5.000000108e-01, 1.666667395e-01, 4.166652395e-02,
                                            8.332521720e-03, 1.389373970e-03, 2.011083895e-04,
                                            2.443875628e-05};
/// The same for |r| <= ln(2)/32: 2^-29 of e^r.
constexpr std::array<double, 2> kExpShort = {5.000161955e-01, 1.666666716e-01};
/// (e^-r - 1 + r) / r^2.
constexpr std::array<double, 2> kExpShortOfMinus = {kExpShort[0], -kExpShort[1]};
/// (2^r - 1) / r for |r| <= 1/2: 2^-29 of 2^r.
constexpr std::array<double, 6> kExp2 = {6.931472063e-01, 2.402265133e-01, 5.550327676e-02,
                                         9.618005310e-03, 1.340030982e-03, 1.547592746e-04};
/// (log(1 + f) - f + f^2/2) / f^3 for 1 + f in [sqrt(1/2), sqrt(2)]: 2^-30 of log(1 + f).
constexpr std::array<double, 9> kLog = {3.333331258e-01,  -2.500000961e-01, 2.000212022e-01,
                                        -1.666799677e-01, 1.421951817e-01,  -1.240554616e-01,
                                        1.188839056e-01,  -1.167604120e-01, 6.746596987e-02};
/// erf(x)/x - 1 in x^2 for |x| <= 1: 2^-29; log2(erfc x) on [1, 4]: 2^-29 of erf.
constexpr std::array<double, 7> kErfSmall = {1.283791657e-01,  -3.761262584e-01, 1.128358526e-01,
                                             -2.685381563e-02, 5.188333773e-03,  -8.010241894e-04,
                                             7.854008753e-05};
constexpr std::array<double, 7> kErfLarge = {-4.927902964e-04, -1.626045667e+00, -9.206489233e-01,
                                             -1.487511281e-01, 3.150543499e-02,  -4.252513057e-03,
                                             2.688822159e-04};

/// Of AVX-512. Masks are those of f32.
unsigned machine_lanes(Value* x) { return x->getType()->getScalarSizeInBits() == 64 ? 8 : 16; }

}  // namespace

Value* VectorMath::apply(ir::ScalarOp op, Value* x, const std::function<Value*(Value*)>& slow) {
  using ir::ScalarOp;
  switch (op) {
    case ScalarOp::Exp:
      return exp(x);
    case ScalarOp::Exp2:
      return exp2(x);
    case ScalarOp::Expm1:
      return expm1(x);
    case ScalarOp::Log:
      return log(x);
    case ScalarOp::Log2:
      return log2(x);
    case ScalarOp::Log1p:
      return log1p(x);
    case ScalarOp::Tanh:
      return tanh(x);
    case ScalarOp::Sigmoid:
      return sigmoid(x);
    case ScalarOp::Erf:
      return erf(x);
    case ScalarOp::Sin:
      return sine(x, false, slow);
    case ScalarOp::Cos:
      return sine(x, true, slow);
    case ScalarOp::Tan:
      return tangent(x, slow);
    case ScalarOp::Asin:
      return asin(x);
    case ScalarOp::Acos:
      return acos(x);
    case ScalarOp::Atan:
      return atan(x);
    case ScalarOp::Sinh:
      return sinh(x);
    case ScalarOp::Cosh:
      return cosh(x);
    case ScalarOp::Asinh:
      return asinh(x);
    case ScalarOp::Acosh:
      return acosh(x);
    case ScalarOp::Atanh:
      return atanh(x);
    default:
      return nullptr;
  }
}

Value* VectorMath::apply(ir::ScalarOp op, Value* x, Value* y) {
  if (op == ir::ScalarOp::Pow) return is_wide(x) ? wide_power(x, y) : power(x, y);
  return op == ir::ScalarOp::Atan2 ? atan2(x, y) : nullptr;
}

bool VectorMath::is_wide(Value* x) { return x->getType()->getScalarType()->isDoubleTy(); }

Value* VectorMath::real(double value, Value* like) {
  llvm::Constant* constant = llvm::ConstantFP::get(like->getType(), value);
  constexpr unsigned kBitsHeld = 256;
  if (held_ == nullptr || like->getType()->getPrimitiveSizeInBits() != kBitsHeld ||
      constant->isNullValue())
    return constant;
  llvm::Function* function = b_.GetInsertBlock()->getParent();
  Value*& known = (*held_)[{function, constant}];
  if (known == nullptr) known = held(*function, constant);
  return known;
}

/// `constant`, at the function's entry, opaque.
Value* VectorMath::held(llvm::Function& function, llvm::Constant* constant) {
  llvm::BasicBlock& entry = function.getEntryBlock();
  llvm::IRBuilder<> b(&entry, entry.getFirstInsertionPt());
  return opaque(b, constant);
}

Value* VectorMath::integer(std::int64_t value, Value* like) {
  llvm::Type* type = like->getType();
  if (type->isFPOrFPVectorTy())
    type = type->getWithNewType(is_wide(like) ? b_.getInt64Ty() : b_.getInt32Ty());
  return llvm::ConstantInt::getSigned(type, value);
}

Value* VectorMath::fma(Value* a, Value* b, Value* c) {
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Value* VectorMath::polynomial(std::span<const double> coefficients, Value* x) {
  Value* sum = real(coefficients.back(), x);
  for (std::size_t k = coefficients.size() - 1; k-- > 0;)
    sum = fma(sum, x, real(coefficients[k], x));
  return sum;
}

/// The same with half as many steps that wait for each other, for processors whose window holds few vectors' instructions.
Value* VectorMath::polynomial_by_pairs(std::span<const double> coefficients, Value* x,
                                       Value* square) {
  const auto pair = [&](std::size_t k) {
    return k + 1 < coefficients.size()
               ? fma(real(coefficients[k + 1], x), x, real(coefficients[k], x))
               : real(coefficients[k], x);
  };
  std::size_t k = (coefficients.size() - 1) / 2 * 2;
  Value* sum = pair(k);
  while (k >= 2) sum = fma(sum, square, pair(k -= 2));
  return sum;
}

Value* VectorMath::absolute(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }

Value* VectorMath::to_bits(Value* x) { return b_.CreateBitCast(x, integer(0, x)->getType()); }

Value* VectorMath::from_bits(Value* x) {
  llvm::Type* real = x->getType()->getScalarSizeInBits() == 64 ? b_.getDoubleTy() : b_.getFloatTy();
  return b_.CreateBitCast(x, x->getType()->getWithNewType(real));
}

Value* VectorMath::copy_sign(Value* magnitude, Value* sign) {
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
}

/// Keeps NaN.
Value* VectorMath::clamp(Value* x, double low, double high) {
  x = b_.CreateSelect(b_.CreateFCmpOLT(x, real(low, x)), real(low, x), x);
  return b_.CreateSelect(b_.CreateFCmpOGT(x, real(high, x)), real(high, x), x);
}

bool VectorMath::takes_avx512(Value* x) const {
  return avx512_ && lanes_of(x) != 0 && lanes_of(x) % machine_lanes(x) == 0;
}

std::vector<Value*> VectorMath::machine_vectors(Value* x) {
  std::vector<Value*> parts;
  const unsigned width = machine_lanes(x);
  for (unsigned first = 0; first < lanes_of(x); first += width)
    parts.push_back(b_.CreateShuffleVector(x, lane_range(first, width)));
  return parts;
}

Value* VectorMath::each_machine_vector(Value* x, const std::function<Value*(Value*)>& compute) {
  std::vector<Value*> parts = machine_vectors(x);
  for (Value*& part : parts) part = compute(part);
  return concatenate(b_, std::move(parts));
}

Value* VectorMath::each_machine_vector(Value* x, Value* y,
                                       const std::function<Value*(Value*, Value*)>& compute) {
  std::vector<Value*> parts = machine_vectors(x);
  const std::vector<Value*> others = machine_vectors(y);
  for (std::size_t k = 0; k < parts.size(); ++k) parts[k] = compute(parts[k], others[k]);
  return concatenate(b_, std::move(parts));
}

llvm::Constant* VectorMath::table(std::span<const float> values) {
  llvm::SmallVector<llvm::Constant*, 16> lanes;
  for (float value : values) lanes.push_back(llvm::ConstantFP::get(b_.getFloatTy(), value));
  return llvm::ConstantVector::get(lanes);
}

/// values[index % 16] for every lane.
Value* VectorMath::look_up(std::span<const float> values, Value* index) {
  llvm::Constant* row = table(values);
  return each_machine_vector(index, [&](Value* part) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {row, part});
  });
}

/// scale() of the lanes where `kept`, 0 in the others, which do not underflow: on AVX-512.
Value* VectorMath::scale_kept(Value* kept, Value* x, Value* exponent) {
  const std::vector<Value*> masks = machine_vectors(kept);
  const std::vector<Value*> powers = machine_vectors(exponent);
  std::vector<Value*> parts = machine_vectors(x);
  for (std::size_t k = 0; k < parts.size(); ++k)
    parts[k] =
        b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                           {parts[k], powers[k], llvm::Constant::getNullValue(parts[k]->getType()),
                            b_.CreateBitCast(masks[k], b_.getInt16Ty()), b_.getInt32(4)});
  return concatenate(b_, std::move(parts));
}

/// x * 2^exponent for an integral exponent in [-300, 254], rounded once.
Value* VectorMath::scale(Value* x, Value* exponent) {
  if (!takes_avx512(x)) {
    // Of NaN it is no number, and then x is NaN as well; frozen, it does not spread to what x makes of it.
    Value* n = b_.CreateFreeze(b_.CreateFPToSI(exponent, integer(0, x)->getType()));
    Value* half = b_.CreateAShr(n, integer(1, x));
    const auto power = [&](Value* e) {
      return from_bits(b_.CreateShl(b_.CreateAdd(e, integer(127, x)), integer(23, x)));
    };
    return b_.CreateFMul(b_.CreateFMul(x, power(half)), power(b_.CreateSub(n, half)));
  }
  return each_machine_vector(x, exponent, [&](Value* part, Value* power) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                              {part, power, part, b_.getInt16(0xffff), b_.getInt32(4)});
  });
}

/// 1 / x to 1 ulp for an x whose reciprocal is normal: an estimate of 14 bits and a step of Newton and Raphson,
/// where a vector division of AVX-512 takes as long as thirty additions.
Value* VectorMath::reciprocal(Value* x) {
  Value* estimate = each_machine_vector(x, [&](Value* part) {
    return b_.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_rcp14_ps_512, {},
        {part, llvm::Constant::getNullValue(part->getType()), b_.getInt16(0xffff)});
  });
  return fma(fma(b_.CreateFNeg(x), estimate, real(1, x)), estimate, estimate);
}

namespace {

/// 2^(k / 16), or its reciprocal.
std::array<float, 16> roots(double sign) {
  std::array<float, 16> values{};
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = static_cast<float>(std::exp2(sign * static_cast<double>(k) / 16));
  return values;
}

}  // namespace

/// x as a multiple n of ln(2) / 16, counted in ln(2), and a rest r. The bits of `shifted` end with those of 16 n.
VectorMath::Split VectorMath::split_by_sixteenths(Value* x) {
  Value* rounder = real(kRounder / 16, x);
  Value* shifted = fma(x, real(kLog2E, x), rounder);
  Value* n = b_.CreateFSub(shifted, rounder);
  Value* r = fma(n, real(-kLn2High, x), x);
  return {n, fma(n, real(-kLn2Low, x), r), to_bits(shifted)};
}

namespace {

/// Logarithm of half the least subnormal: exponentials of less are 0.
constexpr double kVanishing = -103.97207708399179;

}  // namespace

/// x from `low` on, or NaN.
Value* VectorMath::at_least(Value* x, double low) {
  return b_.CreateSelect(b_.CreateFCmpOLT(x, real(low, x)), real(low, x), x);
}

/// 1.1 ulp: e^x = 2^floor(n) 2^(n - floor(n)) e^r, the second factor from a table in a register.
Value* VectorMath::exp_by_table(Value* x) { return exp_of_bounded(at_most(x, 89)); }

/// The same for an x up to 89, or NaN.
Value* VectorMath::exp_of_bounded(Value* bounded) {
  Value* kept = b_.CreateFCmpUGE(bounded, real(kVanishing, bounded));
  const Split split = split_by_sixteenths(bounded);
  Value* rest = fma(polynomial(kExpShort, split.r), split.r, real(1, split.r));
  rest = b_.CreateFMul(rest, split.r);
  Value* root = look_up(roots(1), split.index);
  // The scaling rounds its exponent down.
  return scale_kept(kept, fma(root, rest, root), split.n);
}

/// Added and subtracted, `kRounder + 127 + shift` rounds to an integer n, and the sum's bits end with those of the exponent of
/// 2^(n + shift), which one shift puts in place.
Value* VectorMath::power_of_sum(Value* sum) {
  return from_bits(b_.CreateShl(to_bits(sum), integer(23, sum)));
}

Value* VectorMath::exp_up_to_zero(Value* x) {
  if (takes_avx512(x)) return exp_of_bounded(x);
  return vanishing(x, kVanishing, [this](Value* bounded) { return exp_between(bounded); });
}

/// For an x from -104 to 0, or NaN. Scaled by 2^(n + 64) and by 2^-64, the result is rounded once where it is subnormal, as scale()
/// rounds it.
Value* VectorMath::exp_between(Value* x) {
  constexpr double kShift = 64;
  Value* rounder = real(kRounder + 127 + kShift, x);
  Value* sum = fma(x, real(kLog2E, x), rounder);
  Value* near = exp_near_zero(x, b_.CreateFSub(sum, rounder));
  return b_.CreateFMul(b_.CreateFMul(near, power_of_sum(sum)), real(std::exp2(-kShift), x));
}

/// e^(x - n ln(2)).
Value* VectorMath::exp_near_zero(Value* x, Value* n) {
  Value* r = fma(n, real(-kLn2Low, x), fma(n, real(-kLn2High, x), x));
  Value* rest = fma(b_.CreateFMul(r, r), polynomial(kExp, r), r);
  return b_.CreateFAdd(rest, real(1, x));
}

/// `compute` of x, and 0 where x is below `low`, so that the result would be rounded to it. A scaling that underflows takes some
/// 100 ns, and hidden scores of attention are all so small: such lanes compute that of 0.
Value* VectorMath::vanishing(Value* x, double low, const std::function<Value*(Value*)>& compute) {
  Value* vanishes = b_.CreateFCmpOLT(x, real(low, x));
  return b_.CreateSelect(vanishes, real(0, x), compute(b_.CreateSelect(vanishes, real(0, x), x)));
}

/// x up to `high`, or NaN.
Value* VectorMath::at_most(Value* x, double high) {
  return b_.CreateSelect(b_.CreateFCmpOGT(x, real(high, x)), real(high, x), x);
}

/// 1.1 ulp; 1.3 without AVX-512, by e^x = 2^n 2^n e^r: twice the same factor, which is in reach of a float where 2^(2n) is not, for a
/// polynomial two terms longer.
Value* VectorMath::exp(Value* x) {
  if (is_wide(x)) return wide_exp(x);
  if (takes_avx512(x)) return exp_by_table(x);
  return vanishing(x, kVanishing, [this](Value* given) {
    Value* bounded = at_most(given, 89);
    Value* rounder = real(kRounder + 127, bounded);
    Value* sum = fma(bounded, real(kLog2E / 2, bounded), rounder);
    Value* n = b_.CreateFSub(sum, rounder);
    Value* r = fma(n, real(-2 * kLn2Low, n), fma(n, real(-2 * kLn2High, n), bounded));
    Value* rest = fma(b_.CreateFMul(r, r), polynomial(kExpWide, r), r);
    Value* power = power_of_sum(sum);
    return b_.CreateFMul(b_.CreateFMul(b_.CreateFAdd(rest, real(1, n)), power), power);
  });
}

/// 1.1 ulp.
Value* VectorMath::exp2(Value* x) {
  if (is_wide(x)) return wide_exp2(x);
  return vanishing(x, -150, [this](Value* given) {
    Value* bounded = at_most(given, 129);
    Value* rounder = real(kRounder, bounded);
    Value* n = b_.CreateFSub(b_.CreateFAdd(bounded, rounder), rounder);
    Value* r = b_.CreateFSub(bounded, n);
    return scale(fma(r, polynomial(kExp2, r), real(1, bounded)), n);
  });
}

/// (e^x - 1) / 4, which is finite where e^x / 2 is.
Value* VectorMath::quarter_expm1(Value* x) {
  if (is_wide(x)) return wide_quarter_expm1(x);
  // Up to where e^x / 2 is infinite, and no further: a rest below 0 times an infinite power, less infinity, were no number.
  Value* bounded = clamp(x, -20, 89.5);
  Value* rounder = real(kRounder, x);
  Value* n = b_.CreateFSub(fma(bounded, real(kLog2E, x), rounder), rounder);
  Value* r = fma(n, real(-kLn2Low, x), fma(n, real(-kLn2High, x), bounded));
  Value* p = fma(b_.CreateFMul(r, r), polynomial(kExpm1, r), r);
  // 2^n (1 + p) - 1 with 2^(n-2), since 2^n itself may overflow.
  Value* quarter = scale(real(0.25, x), n);
  return fma(p, quarter, b_.CreateFSub(quarter, real(0.25, x)));
}

/// 1.5 ulp; 1.8 of f64.
Value* VectorMath::expm1(Value* x) {
  Value* tiny = b_.CreateFCmpOLT(absolute(x), real(0x1p-60, x));
  return b_.CreateSelect(tiny, x, b_.CreateFMul(quarter_expm1(x), real(4, x)));
}

struct VectorMath::Reduced {
  Value* exponent;  ///< e, as a float
  Value* f;         ///< x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2))
  Value* rest;      ///< log(1 + f) = f - f^2/2 + rest
};

VectorMath::Reduced VectorMath::reduce_log(Value* x) {
  Value* subnormal = b_.CreateFCmpOLT(x, real(0x1p-126, x));
  Value* normal = b_.CreateSelect(subnormal, b_.CreateFMul(x, real(0x1p23, x)), x);
  constexpr std::int64_t kRootHalf = 0x3f3504f3;
  Value* bits = b_.CreateSub(to_bits(normal), integer(kRootHalf, x));
  Value* e = b_.CreateSIToFP(b_.CreateAShr(bits, integer(23, x)), x->getType());
  e = b_.CreateSelect(subnormal, b_.CreateFSub(e, real(23, x)), e);
  Value* mantissa = b_.CreateAnd(bits, integer(0x7fffff, x));
  Value* f = b_.CreateFSub(from_bits(b_.CreateAdd(mantissa, integer(kRootHalf, x))), real(1, x));
  Value* cube = b_.CreateFMul(b_.CreateFMul(f, f), f);
  return {e, f, b_.CreateFMul(cube, polynomial(kLog, f))};
}

/// `finite` where 0 < x < infinity; the limits elsewhere.
Value* VectorMath::log_limits(Value* x, Value* finite) {
  llvm::Type* type = x->getType();
  Value* zero = llvm::Constant::getNullValue(type);
  Value* infinity = llvm::ConstantFP::getInfinity(type);
  Value* inside = b_.CreateAnd(b_.CreateFCmpOGT(x, zero), b_.CreateFCmpOLT(x, infinity));
  Value* low = b_.CreateSelect(b_.CreateFCmpOEQ(x, zero), llvm::ConstantFP::getInfinity(type, true),
                               llvm::ConstantFP::getNaN(type));
  Value* edge = b_.CreateSelect(b_.CreateFCmpOEQ(x, infinity), x, low);
  return b_.CreateSelect(inside, finite, edge);
}

/// log(x) = exponent ln(2) + table + rest.
struct VectorMath::TableLog {
  Value* exponent;
  Value* table;
  Value* rest;
};

/// The instructions that take floats apart give what makes 0, infinities and NaN come out right.
VectorMath::TableLog VectorMath::reduce_log_by_table(Value* x) {
  constexpr unsigned kMantissaFromThreeQuarters = 3;
  constexpr unsigned kPositiveElseNan = 3 << 2;
  const auto exponent = [&](Value* part) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_getexp_ps_512, {},
                              {part, part, b_.getInt16(0xffff), b_.getInt32(4)});
  };
  Value* m = each_machine_vector(x, [&](Value* part) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_getmant_ps_512, {},
                              {part, b_.getInt32(kMantissaFromThreeQuarters | kPositiveElseNan),
                               part, b_.getInt16(0xffff), b_.getInt32(4)});
  });
  Value* e = b_.CreateFSub(each_machine_vector(x, exponent), each_machine_vector(m, exponent));
  const LogTable& table = log_table();
  Value* index = b_.CreateLShr(to_bits(m), integer(19, x));
  Value* r = fma(m, look_up(table.reciprocals, index), real(-1, x));
  return {e, look_up(table.logarithms, index),
          fma(b_.CreateFMul(r, r), polynomial(table.rest, r), r)};
}

/// 1.2 ulp; of log(x) + beside, if that is given. ln 2 is in two parts of one sign, as infinities are multiplied by both.
Value* VectorMath::log_by_table(Value* x, Value* beside) {
  constexpr double kHigh = 0x1.62e42ep-1;
  constexpr double kLow = 0x1.efa39ep-25;
  const TableLog log = reduce_log_by_table(x);
  Value* low = fma(log.exponent, real(kLow, x), log.rest);
  if (beside != nullptr) low = b_.CreateFAdd(low, beside);
  return fma(log.exponent, real(kHigh, x), b_.CreateFAdd(log.table, low));
}

/// 1.5 ulp.
Value* VectorMath::log2_by_table(Value* x) {
  const TableLog log = reduce_log_by_table(x);
  Value* high = fma(log.table, real(kLog2E, x), log.exponent);
  // What the rounding of it lost: no number for infinities, which then are the result.
  Value* lost = fma(log.table, real(kLog2E, x), b_.CreateFSub(log.exponent, high));
  Value* low = fma(log.rest, real(kLog2E, x), fma(log.table, real(kLog2ELow, x), lost));
  low = fma(log.rest, real(kLog2ELow, x), low);
  Value* finite = b_.CreateFCmpOLT(absolute(high), llvm::ConstantFP::getInfinity(x->getType()));
  return b_.CreateSelect(finite, b_.CreateFAdd(high, low), high);
}

/// 1 ulp.
Value* VectorMath::log(Value* x) {
  if (is_wide(x)) return wide_log(x);
  if (takes_avx512(x)) return log_by_table(x);
  const Reduced reduced = reduce_log(x);
  Value* f = reduced.f;
  Value* low = fma(reduced.exponent, real(kLn2Low, x), reduced.rest);
  low = fma(b_.CreateFMul(f, f), real(-0.5, x), low);
  Value* sum = fma(reduced.exponent, real(kLn2High, x), b_.CreateFAdd(f, low));
  return log_limits(x, sum);
}

/// 2 ulp.
Value* VectorMath::log2(Value* x) {
  if (is_wide(x)) return wide_log2(x);
  if (takes_avx512(x)) return log2_by_table(x);
  const Reduced reduced = reduce_log(x);
  Value* f = reduced.f;
  Value* low = fma(b_.CreateFMul(f, f), real(-0.5, x), reduced.rest);
  // f log2(e) in two parts: the error of the first is as large as the result's own.
  Value* scaled = fma(low, real(kLog2E, x), b_.CreateFMul(f, real(kLog2ELow, x)));
  Value* sum = fma(f, real(kLog2E, x), scaled);
  return log_limits(x, b_.CreateFAdd(reduced.exponent, sum));
}

/// 1.5 ulp.
Value* VectorMath::log1p(Value* x) {
  if (is_wide(x)) return wide_log1p(x);
  Value* u = b_.CreateFAdd(x, real(1, x));
  Value* lost = b_.CreateFSub(x, b_.CreateFSub(u, real(1, x)));
  Value* tiny = b_.CreateFCmpOLT(absolute(x), real(0x1p-60, x));
  if (takes_avx512(x)) {
    // Of 0 and infinity nothing is to be made good, and the reciprocal of neither is a number.
    Value* inside = b_.CreateAnd(b_.CreateFCmpOGT(u, real(0, x)),
                                 b_.CreateFCmpOLT(u, llvm::ConstantFP::getInfinity(x->getType())));
    Value* made_good = b_.CreateSelect(inside, b_.CreateFMul(lost, reciprocal(u)), real(0, x));
    return b_.CreateSelect(tiny, x, log_by_table(u, made_good));
  }
  const Reduced reduced = reduce_log(u);
  Value* f = reduced.f;
  Value* low = fma(reduced.exponent, real(kLn2Low, x), reduced.rest);
  low = fma(b_.CreateFMul(f, f), real(-0.5, x), low);
  low = b_.CreateFAdd(low, b_.CreateFDiv(lost, u));
  Value* sum = fma(reduced.exponent, real(kLn2High, x), b_.CreateFAdd(f, low));
  return b_.CreateSelect(tiny, x, log_limits(u, sum));
}

/// An odd function from its table: 1.2 ulp.
Value* VectorMath::piecewise(const PiecewiseTable& table, Value* x) {
  constexpr std::size_t kHalf = PiecewiseTable::kIntervals / 2;
  Value* magnitude = absolute(x);
  Value* high = real(table.highest, x);
  magnitude = b_.CreateSelect(b_.CreateFCmpOGT(magnitude, high), high, magnitude);
  Value* least = real(std::ldexp(1.0, table.first_exponent), x);
  Value* inside = b_.CreateSelect(b_.CreateFCmpOLT(magnitude, least), least, magnitude);
  const std::vector<Value*> indices =
      machine_vectors(b_.CreateLShr(to_bits(inside), integer(21, x)));
  const auto find = [&](const std::array<float, 2 * kHalf>& row, std::size_t part) {
    const std::span<const float> values(row);
    return b_.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {},
        {this->table(values.first(kHalf)), indices[part], this->table(values.last(kHalf))});
  };
  // Each look-up next to its use: all of one power together would not fit the registers.
  std::vector<Value*> t = machine_vectors(magnitude);
  std::vector<Value*> sums;
  for (std::size_t k = 0; k < t.size(); ++k) t[k] = b_.CreateFSub(t[k], find(table.centers, k));
  for (std::size_t k = 0; k < t.size(); ++k) sums.push_back(find(table.coefficients.back(), k));
  for (std::size_t power = PiecewiseTable::kTerms - 1; power-- > 0;)
    for (std::size_t k = 0; k < t.size(); ++k)
      sums[k] = fma(sums[k], t[k], find(table.coefficients[power], k));
  return copy_sign(concatenate(b_, sums), x);
}

/// The same with AVX2, whose registers hold 8 coefficients.
Value* VectorMath::piecewise(const EvenTable& table, Value* x) {
  Value* magnitude = at_most(absolute(x), table.highest);
  Value* rounder = real(kRounder, x);
  Value* sum = fma(magnitude, real(1 / static_cast<double>(table.width), x), rounder);
  Value* number = b_.CreateFSub(sum, rounder);
  Value* t = fma(number, real(-table.width, x), magnitude);
  Value* bits = to_bits(sum);
  constexpr unsigned kLanes = EvenTable::kIntervals;
  const auto find = [&](std::size_t power) {
    std::vector<Value*> parts;
    for (unsigned first = 0; first < lanes_of(x); first += kLanes)
      parts.push_back(
          b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {},
                             {this->table(table.coefficients[power]),
                              b_.CreateShuffleVector(bits, lane_range(first, kLanes))}));
    return concatenate(b_, std::move(parts));
  };
  Value* polynomial = find(EvenTable::kTerms - 1);
  for (std::size_t power = EvenTable::kTerms - 1; power-- > 1;)
    polynomial = fma(polynomial, t, find(power));
  Value* around_zero = b_.CreateFCmpOEQ(number, real(0, x));
  return copy_sign(fma(polynomial, t, b_.CreateSelect(around_zero, t, find(0))), x);
}

/// 2.5 ulp: t / (t + 2) with t = e^2|x| - 1.
Value* VectorMath::tanh(Value* x) {
  Value* magnitude = absolute(x);
  if (is_wide(x)) {
    Value* t = expm1(b_.CreateFMul(magnitude, real(-2, x)));
    return copy_sign(b_.CreateFDiv(t, b_.CreateFAdd(t, real(2, x))), x);
  }
  if (takes_avx512(x)) return piecewise(tanh_table(), x);
  // From here on the result is rounded to 1.
  Value* bounded = at_most(magnitude, 9.1);
  Value* rounder = real(kRounder + 127, x);
  Value* sum = fma(bounded, real(2 * kLog2E, x), rounder);
  Value* n = b_.CreateFSub(sum, rounder);
  // What the float of ln 2 leaves is less than the rounding of t + 2.
  Value* r = fma(n, real(-kLn2High, x), b_.CreateFAdd(bounded, bounded));
  Value* square = b_.CreateFMul(r, r);
  Value* near = fma(polynomial_by_pairs(kExp, r, square), square, r);
  Value* power = power_of_sum(sum);
  Value* t = fma(near, power, b_.CreateFSub(power, real(1, x)));
  return copy_sign(b_.CreateFDiv(t, b_.CreateFAdd(t, real(2, x))), x);
}

/// 2.5 ulp: e^x = 2^floor(n) m, and 1 / (1 + e^-x) = s / (s + m) with s a power of two, which overflows nowhere.
Value* VectorMath::sigmoid_by_table(Value* x) {
  const Split split = split_by_sixteenths(clamp(x, -104, 30));
  // e^-x = 2^-n e^-r.
  Value* rest = fma(polynomial(kExpShortOfMinus, split.r), split.r, real(-1, x));
  rest = b_.CreateFMul(rest, split.r);
  Value* root = look_up(roots(-1), split.index);
  Value* power = scale(real(1, x), split.n);
  Value* denominator = b_.CreateFAdd(fma(root, rest, root), power);
  return scale(reciprocal(denominator), split.n);
}

/// 2.5 ulp. From exp(-|x|), which does not overflow.
Value* VectorMath::sigmoid(Value* x) {
  if (!is_wide(x) && takes_avx512(x)) return sigmoid_by_table(x);
  Value* one = real(1, x);
  Value* below = b_.CreateFNeg(absolute(x));
  Value* e = is_wide(x) ? exp(below) : exp_between(at_least(below, -104));
  Value* negative = b_.CreateICmpSLT(to_bits(x), integer(0, x));
  return b_.CreateFDiv(b_.CreateSelect(negative, e, one), b_.CreateFAdd(e, one));
}

/// 1.5 ulp; 1.1 with AVX2.
Value* VectorMath::erf(Value* x) {
  if (is_wide(x)) return wide_erf(x);
  if (takes_avx512(x)) return piecewise(erf_table(), x);
  if (avx2_ && lanes_of(x) % EvenTable::kIntervals == 0 && lanes_of(x) != 0)
    return piecewise(even_erf_table(), x);
  Value* magnitude = absolute(x);
  Value* small = fma(x, polynomial(kErfSmall, b_.CreateFMul(x, x)), x);
  Value* bounded = at_most(magnitude, 4);
  Value* power = polynomial_by_pairs(kErfLarge, bounded, b_.CreateFMul(bounded, bounded));
  Value* rounder = real(kRounder + 127, x);
  Value* sum = b_.CreateFAdd(power, rounder);
  Value* r = b_.CreateFSub(power, b_.CreateFSub(sum, rounder));
  Value* near = fma(r, polynomial_by_pairs(kExp2, r, b_.CreateFMul(r, r)), real(1, x));
  Value* large = fma(b_.CreateFNeg(near), power_of_sum(sum), real(1, x));
  return b_.CreateSelect(b_.CreateFCmpOLT(magnitude, real(1, x)), small, copy_sign(large, x));
}

}  // namespace heddle::jit::cpu
