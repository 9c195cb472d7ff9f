// Exponentials of f32 as straight-line vector code, and functions that level off: tanh, sigmoid, erf.
#include <array>
#include <bit>
#include <cmath>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <vector>

#include "jit/cpu/llvm/math_tables.h"
#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2: 2^-28 of e^r; five terms more exactly for expm1.
constexpr std::array<double, 5> kExp = {5.000000095e-01, 1.666651884e-01, 4.166620583e-02,
                                        8.368889558e-03, 1.395048916e-03};
constexpr std::array<double, 6> kExpm1 = {5.000000044e-01, 1.666666637e-01, 4.166636091e-02,
                                          8.333389372e-03, 1.394062765e-03, 1.984587709e-04};
/// The first for |r| <= ln(2): 2^-30 of e^r.
constexpr std::array<double, 7> kExpWide = {5.000000108e-01, 1.666667395e-01, 4.166652395e-02,
                                            8.332521720e-03, 1.389373970e-03, 2.011083895e-04,
                                            2.443875628e-05};
/// The first for |r| <= ln(2)/8: 2^-27 of e^r; for ln(2)/16: 2^-25; for ln(2)/32: 2^-29.
constexpr std::array<double, 3> kExpOfEighth = {5.000002042e-01, 1.667210848e-01, 4.164173626e-02};
constexpr std::array<double, 2> kExpOfSixteenth = {5.000645361e-01, 1.666685858e-01};
constexpr std::array<double, 2> kExpShort = {5.000161955e-01, 1.666666716e-01};
/// (e^-r - 1 + r) / r^2.
constexpr std::array<double, 2> kExpShortOfMinus = {kExpShort[0], -kExpShort[1]};
/// (2^r - 1) / r for |r| <= 1/2: 2^-29 of 2^r.
constexpr std::array<double, 6> kExp2 = {6.931472063e-01, 2.402265133e-01, 5.550327676e-02,
                                         9.618005310e-03, 1.340030982e-03, 1.547592746e-04};
/// erf(x)/x - 1 in x^2 for |x| <= 1: 2^-29; log2(erfc x) on [1, 4]: 2^-29 of erf.
constexpr std::array<double, 7> kErfSmall = {1.283791657e-01,  -3.761262584e-01, 1.128358526e-01,
                                             -2.685381563e-02, 5.188333773e-03,  -8.010241894e-04,
                                             7.854008753e-05};
constexpr std::array<double, 7> kErfLarge = {-4.927902964e-04, -1.626045667e+00, -9.206489233e-01,
                                             -1.487511281e-01, 3.150543499e-02,  -4.252513057e-03,
                                             2.688822159e-04};

/// Logarithm of half the least subnormal: exponentials of less are 0.
constexpr double kVanishing = -103.97207708399179;
/// That of the least normal number, rounded towards 0: exponentials of less are subnormal.
constexpr double kSubnormal = -87.33654;

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

/// 1.1 ulp: e^x = 2^floor(n) 2^(n - floor(n)) e^r, the second factor from a table in a register.
Value* VectorMath::exp_by_table(Value* x) { return exp_of_bounded(at_most(x, 89), kVanishing); }

/// The same for an x up to 89, or NaN; 0 below `low`.
Value* VectorMath::exp_of_bounded(Value* bounded, double low) {
  Value* kept = b_.CreateFCmpUGE(bounded, real(low, bounded));
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

Value* VectorMath::exp_up_to_zero(Value* x, bool keeps_subnormals) {
  const double low = keeps_subnormals ? kVanishing : kSubnormal;
  if (takes_avx512(x)) return exp_of_bounded(x, low);
  return vanishing(x, low, [this](Value* bounded) { return exp_between(bounded); });
}

/// root(k) 2^(n + shift), for a `sum` whose bits end with those of 8 n + k: an addition to the exponent, whose own part of k the table
/// takes back.
Value* VectorMath::scaled_root(const std::function<double(int)>& root, int shift, Value* sum) {
  llvm::SmallVector<llvm::Constant*, 8> lanes;
  for (int k = 0; k < 8; ++k) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(root(k)));
    const auto moved =
        (static_cast<std::uint32_t>(shift) << 23) - (static_cast<std::uint32_t>(k) << 20);
    lanes.push_back(b_.getInt32(bits + moved));
  }
  Value* bits = to_bits(sum);
  return from_bits(b_.CreateAdd(b_.CreateShl(bits, integer(20, sum)),
                                look_up_of_eight(llvm::ConstantVector::get(lanes), bits)));
}

/// For an x from -104 to 0, or NaN. Scaled by 2^(n + 64) and by 2^-64, the result is rounded once where it is subnormal, as scale()
/// rounds it.
Value* VectorMath::exp_between(Value* x) {
  constexpr int kShift = 64;
  Value* rounder = real(kRounder / 8, x);
  Value* sum = fma(x, real(kLog2E, x), rounder);
  Value* n = b_.CreateFSub(sum, rounder);
  Value* r = fma(n, real(-kLn2Low, x), fma(n, real(-kLn2High, x), x));
  Value* rest = fma(b_.CreateFMul(r, r), polynomial(kExpOfSixteenth, r), r);
  Value* power = scaled_root([](int k) { return std::exp2(k / 8.0); }, kShift, sum);
  return b_.CreateFMul(fma(rest, power, power), real(std::exp2(-kShift), x));
}

/// `compute` of x, and 0 where x is below `low`, so that the result would be rounded to it. A scaling that underflows takes some
/// 100 ns, and hidden scores of attention are all so small: such lanes compute that of 0.
Value* VectorMath::vanishing(Value* x, double low, const std::function<Value*(Value*)>& compute) {
  Value* vanishes = b_.CreateFCmpOLT(x, real(low, x));
  return b_.CreateSelect(vanishes, real(0, x), compute(b_.CreateSelect(vanishes, real(0, x), x)));
}

/// 1.1 ulp with AVX-512. Else 1.3, by e^x = 2^n 2^n e^r: twice the same factor, which is in reach of a float where 2^(2n) is not. With
/// AVX2 n counts eighths, and a register holds the roots.
Value* VectorMath::exp(Value* x) {
  if (is_wide(x)) return wide_exp(x);
  if (takes_avx512(x)) return exp_by_table(x);
  const double parts = has_avx2_ ? 8 : 1;
  return vanishing(x, kVanishing, [&](Value* given) {
    Value* bounded = at_most(given, 89);
    Value* rounder = real(kRounder / parts + 127, bounded);
    Value* sum = fma(bounded, real(kLog2E / 2, bounded), rounder);
    Value* n = b_.CreateFSub(sum, rounder);
    Value* r = fma(n, real(-2 * kLn2Low, n), fma(n, real(-2 * kLn2High, n), bounded));
    Value* square = b_.CreateFMul(r, r);
    if (!has_avx2_) {
      Value* near = b_.CreateFAdd(fma(square, polynomial(kExpWide, r), r), real(1, n));
      Value* power = power_of_sum(sum);
      return b_.CreateFMul(b_.CreateFMul(near, power), power);
    }
    Value* rest = fma(square, polynomial(kExpOfEighth, r), r);
    Value* first = scaled_root([](int k) { return std::exp2(k / 4.0); }, -127, sum);
    constexpr std::int64_t kExponent = 0x7f800000;
    Value* eighths = b_.CreateShl(to_bits(sum), integer(20, sum));
    Value* second = from_bits(b_.CreateAnd(eighths, integer(kExponent, sum)));
    return b_.CreateFMul(fma(rest, first, first), second);
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
  const auto find = [&](std::size_t power) {
    return look_up_of_eight(this->table(table.coefficients[power]), bits);
  };
  Value* polynomial = find(EvenTable::kTerms - 1);
  for (std::size_t power = EvenTable::kTerms - 1; power-- > 1;)
    polynomial = fma(polynomial, t, find(power));
  Value* around_zero = b_.CreateFCmpOEQ(number, real(0, x));
  return copy_sign(fma(polynomial, t, b_.CreateSelect(around_zero, t, find(0))), x);
}

/// 2.6 ulp: t / (t + 2) with t = e^2|x| - 1.
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

/// 3.1 ulp: e^x = 2^floor(n) m, and 1 / (1 + e^-x) = s / (s + m) with s a power of two, which overflows nowhere.
/// As exp(x) does, it vanishes without a scaling that underflows.
Value* VectorMath::sigmoid_by_table(Value* x) {
  Value* kept = b_.CreateFCmpUGE(x, real(kVanishing, x));
  const Split split = split_by_sixteenths(at_most(x, 30));
  // e^-x = 2^-n e^-r.
  Value* rest = fma(polynomial(kExpShortOfMinus, split.r), split.r, real(-1, x));
  rest = b_.CreateFMul(rest, split.r);
  Value* root = look_up(roots(-1), split.index);
  // Below 2^-100 it adds nothing.
  Value* power = scale(real(1, x), at_least(split.n, -100));
  Value* denominator = b_.CreateFAdd(fma(root, rest, root), power);
  return scale_kept(kept, reciprocal(denominator), split.n);
}

/// 2.8 ulp; 3.1 with AVX-512. From exp(-|x|), which does not overflow.
Value* VectorMath::sigmoid(Value* x) {
  if (!is_wide(x) && takes_avx512(x)) return sigmoid_by_table(x);
  Value* one = real(1, x);
  Value* below = b_.CreateFNeg(absolute(x));
  Value* e = is_wide(x) || !has_avx2_ ? exp(below) : exp_up_to_zero(below, true);
  Value* negative = b_.CreateICmpSLT(to_bits(x), integer(0, x));
  return b_.CreateFDiv(b_.CreateSelect(negative, e, one), b_.CreateFAdd(e, one));
}

/// 1.5 ulp; 2.3 with AVX-512, 1.1 with AVX2.
Value* VectorMath::erf(Value* x) {
  if (is_wide(x)) return wide_erf(x);
  if (takes_avx512(x)) return piecewise(erf_table(), x);
  if (has_avx2_) return piecewise(even_erf_table(), x);
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
