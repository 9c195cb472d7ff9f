// Functions as straight-line vector code: what f32 and f64 share, and logarithms of f32.
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

/// (log(1 + f) - f + f^2/2) / f^3 for 1 + f in [sqrt(1/2), sqrt(2)]: 2^-30 of log(1 + f).
constexpr std::array<double, 9> kLog = {3.333331258e-01,  -2.500000961e-01, 2.000212022e-01,
                                        -1.666799677e-01, 1.421951817e-01,  -1.240554616e-01,
                                        1.188839056e-01,  -1.167604120e-01, 6.746596987e-02};
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

/// x from `low` on, or NaN.
Value* VectorMath::at_least(Value* x, double low) {
  return b_.CreateSelect(b_.CreateFCmpOLT(x, real(low, x)), real(low, x), x);
}

/// x up to `high`, or NaN.
Value* VectorMath::at_most(Value* x, double high) {
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

/// row[index % 8] for every lane, by AVX2.
Value* VectorMath::look_up_of_eight(llvm::Constant* row, Value* index) {
  constexpr unsigned kLanes = 8;
  const bool of_floats = row->getType()->getScalarType()->isFloatTy();
  const auto find = [&](Value* part) {
    return b_.CreateIntrinsic(
        of_floats ? llvm::Intrinsic::x86_avx2_permps : llvm::Intrinsic::x86_avx2_permd, {},
        {row, part});
  };
  const unsigned lanes = lanes_of(index);
  if (lanes == 0)
    return b_.CreateExtractElement(find(b_.CreateVectorSplat(kLanes, index)), std::uint64_t{0});
  std::vector<Value*> parts;
  for (unsigned first = 0; first < lanes; first += kLanes) {
    const unsigned count = std::min(kLanes, lanes - first);
    std::vector<int> range = lane_range(first, count);
    range.resize(kLanes, llvm::PoisonMaskElem);
    Value* found = find(b_.CreateShuffleVector(index, range));
    parts.push_back(count == kLanes ? found : b_.CreateShuffleVector(found, lane_range(0, count)));
  }
  return concatenate(b_, std::move(parts));
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

}  // namespace heddle::jit::cpu
