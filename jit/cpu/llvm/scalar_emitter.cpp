#include "jit/cpu/llvm/scalar_emitter.h"

#include <array>
#include <bit>
#include <cmath>
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include "base/check.h"
#include "base/float8.h"
#include "base/half.h"
#include "jit/cpu/llvm/math_library.h"

namespace heddle::jit::cpu {
namespace {

using ir::ScalarOp;
using llvm::Value;
using llvm::Intrinsic::ID;

/// Of divisors whose reciprocals neither overflow nor are subnormal, with room for what a quotient leaves over.
constexpr double kLeastDivisor = 0x1p-100;
constexpr double kMostDivisor = 0x1p100;

llvm::Constant* reals(Value* like, double value) {
  return llvm::ConstantFP::get(like->getType(), value);
}

/// The function of the runtime table that computes `op` on the f32 or f64 that `dtype` is computed with.
std::string runtime_name(DType dtype, ScalarOp op) {
  return std::string("heddle_") + (dtype == DType::F64 ? "f64_" : "f32_") +
         std::string(name_of(op));
}

/// f64, or the f32 that narrower types are computed with.
DType float_type(Value* value) {
  return value->getType()->getScalarType()->isDoubleTy() ? DType::F64 : DType::F32;
}

}  // namespace

/// Without multiply-add units polynomials take longer than the library, but for the short ones of f32.
bool has_vector_math(ScalarOp op, DType dtype, std::int64_t vector_bytes) {
  const bool has_fma = vector_bytes >= kBytesWithFma;
  if (op == ScalarOp::Pow || op == ScalarOp::Atan2 ||
      (op >= ScalarOp::Sinh && op <= ScalarOp::Atanh))
    return has_fma;
  return op >= ScalarOp::Exp && op <= ScalarOp::Sigmoid && (has_fma || dtype != DType::F64);
}

llvm::Type* with_lanes(llvm::Type* element, unsigned lanes) {
  return lanes == 0 ? element : llvm::FixedVectorType::get(element, lanes);
}

std::vector<int> lane_range(unsigned first, unsigned count) {
  std::vector<int> lanes(count);
  for (unsigned k = 0; k < count; ++k) lanes[k] = static_cast<int>(first + k);
  return lanes;
}

llvm::Constant* integers_like(Value* like, std::int64_t value) {
  return llvm::ConstantInt::getSigned(like->getType(), value);
}

unsigned lanes_of(Value* value) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 0 : vector->getNumElements();
}

Value* concatenate(llvm::IRBuilderBase& builder, std::vector<Value*> parts) {
  while (parts.size() > 1) {
    std::vector<Value*> joined;
    for (std::size_t k = 0; k < parts.size(); k += 2)
      joined.push_back(builder.CreateShuffleVector(parts[k], parts[k + 1],
                                                   lane_range(0, 2 * lanes_of(parts[k]))));
    parts = joined;
  }
  return parts[0];
}

bool is_simple_power(double exponent) {
  const double size = std::abs(exponent);
  return size == 1 || size == 0.5 || exponent == 2 || exponent == 3;
}

ScalarEmitter::ScalarEmitter(llvm::IRBuilderBase& builder, llvm::Module& module,
                             std::int64_t vector_bytes, bool narrows_to_bf16, bool permutes_bytes)
    : b_(builder),
      module_(module),
      vector_bytes_(vector_bytes),
      narrows_to_bf16_(narrows_to_bf16),
      permutes_bytes_(permutes_bytes) {}

llvm::Type* ScalarEmitter::compute_type(DType dtype, unsigned lanes) {
  llvm::Type* type = nullptr;
  if (dtype == DType::F64) {
    type = b_.getDoubleTy();
  } else if (is_floating(dtype)) {
    type = b_.getFloatTy();
  } else {
    type = dtype == DType::Bool ? b_.getInt1Ty()
                                : b_.getIntNTy(static_cast<unsigned>(8 * size_of(dtype)));
  }
  return with_lanes(type, lanes);
}

llvm::Type* ScalarEmitter::storage_type(DType dtype, unsigned lanes) {
  if (dtype == DType::F32 || dtype == DType::F64) return compute_type(dtype, lanes);
  return with_lanes(b_.getIntNTy(static_cast<unsigned>(8 * size_of(dtype))), lanes);
}

llvm::Constant* ScalarEmitter::constant(DType dtype, double number, std::int64_t integer,
                                        unsigned lanes) {
  llvm::Type* type = compute_type(dtype, lanes);
  if (!is_floating(dtype))
    return llvm::ConstantInt::getSigned(type, dtype == DType::Bool ? integer != 0 : integer);
  auto narrow = static_cast<float>(number);
  if (dtype == DType::F64) return llvm::ConstantFP::get(type, number);
  if (dtype == DType::F16) narrow = static_cast<float>(base::Half(narrow));
  if (dtype == DType::BF16) narrow = static_cast<float>(base::BFloat16(narrow));
  if (is_float8(dtype)) narrow = base::float8_value(dtype, base::float8_code(dtype, narrow));
  return llvm::ConstantFP::get(type, llvm::APFloat(narrow));
}

Value* ScalarEmitter::splat(Value* value, unsigned lanes) {
  return lanes == 0 || lanes_of(value) != 0 ? value : b_.CreateVectorSplat(lanes, value);
}

Value* ScalarEmitter::convert(Value* value, DType from, DType to) {
  if (from == to) return value;
  const unsigned lanes = lanes_of(value);
  llvm::Type* type = compute_type(to, lanes);
  if (to == DType::Bool)
    return is_floating(from) ? b_.CreateFCmpUNE(value, reals(value, 0))
                             : b_.CreateICmpNE(value, integers_like(value, 0));
  if (!is_floating(from) && !is_floating(to))
    return is_signed(from) ? b_.CreateSExtOrTrunc(value, type) : b_.CreateZExtOrTrunc(value, type);
  if (!is_floating(to)) {
    if (to != DType::I64 || lanes < 2 || vector_bytes_ != 32) return cut_off(value, from, to);
    // Vectors of these have an instruction for i32 only, which most numbers fit.
    Value* size = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, value);
    return either(
        b_.CreateAndReduce(b_.CreateFCmpOLT(size, reals(value, 0x1p31))),
        [&] {
          return b_.CreateSExt(b_.CreateFPToSI(value, with_lanes(b_.getInt32Ty(), lanes)), type);
        },
        [&] { return cut_off(value, from, to); });
  }
  Value* real = value;
  llvm::Type* single = with_lanes(b_.getFloatTy(), lanes);
  if (!is_floating(from)) {
    llvm::Type* target = to == DType::F64 ? type : single;
    real = is_signed(from) ? b_.CreateSIToFP(value, target) : b_.CreateUIToFP(value, target);
  } else if (from == DType::F64) {
    real = b_.CreateFPTrunc(value, single);
  } else if (to == DType::F64) {
    real = b_.CreateFPExt(value, type);
  }
  if (to == DType::F16 || is_float8(to)) return from_storage(to, to_storage(to, real));
  if (to != DType::BF16) return real;
  // Where it stays an f32, integers take fewer instructions.
  Value* rounded = from_storage(to, rounded_to_bf16(real));
  rounded_[rounded] = real;
  return rounded;
}

Value* ScalarEmitter::cut_off(Value* value, DType from, DType to) {
  const unsigned lanes = lanes_of(value);
  // Clamped to what `to` holds before the conversion, whose result is undefined beyond.
  const unsigned width = static_cast<unsigned>(8 * size_of(to));
  const bool is_unsigned = !is_signed(to);
  const unsigned value_bits = width - (is_unsigned ? 0 : 1);
  const double low = is_unsigned ? 0 : -std::ldexp(1.0, static_cast<int>(value_bits));
  const double beyond = std::ldexp(1.0, static_cast<int>(value_bits));
  const unsigned mantissa = from == DType::F64 ? 53 : 24;
  const double high =
      beyond -
      (value_bits > mantissa ? std::ldexp(1.0, static_cast<int>(value_bits - mantissa)) : 1.0);
  Value* bounded =
      b_.CreateSelect(b_.CreateFCmpOLT(value, reals(value, low)), reals(value, low), value);
  bounded =
      b_.CreateSelect(b_.CreateFCmpOGT(bounded, reals(value, high)), reals(value, high), bounded);
  bounded = b_.CreateSelect(b_.CreateFCmpUNO(value, value), reals(value, 0), bounded);
  llvm::Type* integer = with_lanes(width > 32 ? b_.getInt64Ty() : b_.getInt32Ty(), lanes);
  Value* wide = is_unsigned && width >= 32 ? b_.CreateFPToUI(bounded, integer)
                : width > 32 && vector_bytes_ == 32 && lanes > 1
                    ? i64_of(bounded)
                    : b_.CreateFPToSI(bounded, integer);
  Value* result = b_.CreateTrunc(wide, compute_type(to, lanes));
  if (value_bits <= mantissa) return result;
  const std::int64_t largest = is_unsigned ? -1 : width == 64 ? INT64_MAX : INT32_MAX;
  return b_.CreateSelect(b_.CreateFCmpOGE(value, reals(value, beyond)),
                         integers_like(result, largest), result);
}

Value* ScalarEmitter::i64_of(Value* value) {
  const unsigned lanes = lanes_of(value);
  llvm::Type* real = compute_type(DType::F64, lanes);
  llvm::Type* integer = compute_type(DType::I64, lanes);
  const auto whole = [&](Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x); };
  // The last place of this number is 1: what is added to it is in its low bits.
  Value* unit = llvm::ConstantFP::get(real, 0x1.8p52);
  const auto bits = [&](Value* x) {
    return b_.CreateSub(b_.CreateBitCast(b_.CreateFAdd(x, unit), integer),
                        b_.CreateBitCast(unit, integer));
  };
  Value* all = whole(b_.CreateFPExt(value, real));
  Value* high = whole(b_.CreateFMul(all, llvm::ConstantFP::get(real, 0x1p-32)));
  Value* low = b_.CreateIntrinsic(llvm::Intrinsic::fma, {real},
                                  {high, llvm::ConstantFP::get(real, -0x1p32), all});
  return b_.CreateAdd(b_.CreateShl(bits(high), 32), bits(low));
}

Value* ScalarEmitter::apply(ScalarOp op, DType operand, std::span<Value* const> v) {
  if (op == ScalarOp::Select) return b_.CreateSelect(v[0], v[1], v[2]);
  if (op == ScalarOp::Fma) {
    if (!is_floating(operand)) return b_.CreateAdd(b_.CreateMul(v[0], v[1]), v[2]);
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {v[0]->getType()}, {v[0], v[1], v[2]});
  }
  if (v.size() == 1) return unary(op, operand, v[0]);
  if (op >= ScalarOp::Eq && op <= ScalarOp::Ge) return compare(op, operand, v[0], v[1]);
  if (operand == DType::Bool) return binary_bool(op, v[0], v[1]);
  return is_floating(operand) ? binary_float(op, operand, v[0], v[1])
                              : binary_integer(op, operand, v[0], v[1]);
}

Value* ScalarEmitter::unary(ScalarOp op, DType dtype, Value* a) {
  if (op == ScalarOp::IsNan)
    return is_floating(dtype) ? b_.CreateFCmpUNO(a, a) : splat(b_.getFalse(), lanes_of(a));
  if (op == ScalarOp::IsInf)
    return is_floating(dtype) ? b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a),
                                                 llvm::ConstantFP::getInfinity(a->getType()))
                              : splat(b_.getFalse(), lanes_of(a));
  return is_floating(dtype) ? unary_float(op, dtype, a) : unary_integer(op, dtype, a);
}

Value* ScalarEmitter::unary_float(ScalarOp op, DType dtype, Value* a) {
  const auto intrinsic = [&](ID id) { return b_.CreateUnaryIntrinsic(id, a); };
  switch (op) {
    case ScalarOp::Neg:
      return b_.CreateFNeg(a);
    case ScalarOp::Abs:
      return intrinsic(llvm::Intrinsic::fabs);
    case ScalarOp::Sign: {
      Value* negative = b_.CreateSelect(b_.CreateFCmpOLT(a, reals(a, 0)), reals(a, -1), a);
      return b_.CreateSelect(b_.CreateFCmpOGT(a, reals(a, 0)), reals(a, 1), negative);
    }
    case ScalarOp::Ceil:
      return intrinsic(llvm::Intrinsic::ceil);
    case ScalarOp::Floor:
      return intrinsic(llvm::Intrinsic::floor);
    case ScalarOp::Round:
      return intrinsic(llvm::Intrinsic::roundeven);
    case ScalarOp::Trunc:
      return intrinsic(llvm::Intrinsic::trunc);
    case ScalarOp::Sqrt:
      return intrinsic(llvm::Intrinsic::sqrt);
    case ScalarOp::Rsqrt:
      return b_.CreateFDiv(reals(a, 1), intrinsic(llvm::Intrinsic::sqrt));
    case ScalarOp::Reciprocal:
      return b_.CreateFDiv(reals(a, 1), a);
    default:
      break;
  }
  Value* result = nullptr;
  if (has_vector_math(op, dtype, vector_bytes_)) {
    result = call_math(op, std::array{a});
    if (result == nullptr) result = inline_math(op, a);
  }
  return result != nullptr ? result : call_lanes(runtime_name(dtype, op), std::array{a});
}

Value* ScalarEmitter::call_math(ScalarOp op, std::span<Value* const> operands) {
  const unsigned lanes = lanes_of(operands[0]);
  const DType dtype = float_type(operands[0]);
  const auto machine_lanes = static_cast<unsigned>(vector_bytes_ / size_of(dtype));
  if (inline_all_math_ || vector_bytes_ < 32 || lanes == 0 || lanes % machine_lanes != 0)
    return nullptr;
  const unsigned vectors = std::min(lanes / machine_lanes, kMostMathVectors);
  const MathFunction function{op, dtype, vectors, static_cast<unsigned>(vector_bytes_)};
  if (!MathFunction::of_symbol(function.symbol())) return nullptr;
  llvm::Function* callee = declare_math(module_, function);
  std::vector<Value*> parts;
  const unsigned part = vectors * machine_lanes;
  for (unsigned first = 0; first < lanes; first += part) {
    llvm::SmallVector<Value*, 2> given(operands.begin(), operands.end());
    if (lanes != part)
      for (Value*& operand : given)
        operand = b_.CreateShuffleVector(operand, lane_range(first, part));
    llvm::CallInst* call = b_.CreateCall(callee, given);
    call->setCallingConv(callee->getCallingConv());
    parts.push_back(call);
  }
  return concatenate(b_, std::move(parts));
}

Value* ScalarEmitter::inline_math(ScalarOp op, Value* a) {
  const auto slow = [&](Value* x) {
    return call_lanes(runtime_name(float_type(x), op), std::array{x});
  };
  // Two vectors are as many as 16 registers hold; of what is short one, beside its constants.
  const bool in_loop = inline_all_math_ && vector_bytes_ == 32;
  VectorMath math(b_, vector_bytes_, in_loop ? &held_ : nullptr);
  // They branch, once for all lanes.
  if (op == ScalarOp::Sin || op == ScalarOp::Cos || op == ScalarOp::Tan)
    return math.apply(op, a, slow);
  const bool is_short = op == ScalarOp::Exp || op == ScalarOp::Exp2 || in_loop;
  const unsigned vectors = is_short ? 1 : 2;
  return in_parts(a, vectors, [&](Value* part) { return math.apply(op, part, slow); });
}

/// A function of two numbers.
Value* ScalarEmitter::binary_math(ScalarOp op, DType dtype, Value* a, Value* b) {
  if (!has_vector_math(op, dtype, vector_bytes_))
    return call_lanes(runtime_name(dtype, op), std::array{a, b});
  Value* result = call_math(op, std::array{a, b});
  return result != nullptr ? result : inline_math(op, a, b);
}

/// As many at a time as leave their registers to a power, which is computed in f64.
Value* ScalarEmitter::inline_math(ScalarOp op, Value* a, Value* b) {
  VectorMath math(b_, vector_bytes_);
  const unsigned lanes = lanes_of(a);
  const unsigned f32_lanes = vector_bytes_ == 64 ? 32 : 8;
  const unsigned part = float_type(a) == DType::F64 ? f32_lanes / 2 : f32_lanes;
  if (lanes <= part) return math.apply(op, a, b);
  std::vector<Value*> parts;
  for (unsigned first = 0; first < lanes; first += part) {
    const std::vector<int> range = lane_range(first, part);
    parts.push_back(
        math.apply(op, b_.CreateShuffleVector(a, range), b_.CreateShuffleVector(b, range)));
  }
  return concatenate(b_, std::move(parts));
}

/// With 16 registers `machine_vectors` at a time, by instructions that take turns: two are what the registers hold, and one after
/// another would fill the processor's window with instructions that wait for each other.
Value* ScalarEmitter::in_parts(Value* a, unsigned machine_vectors,
                               const std::function<Value*(Value*)>& compute) {
  const unsigned lanes = lanes_of(a);
  const unsigned part_lanes = (float_type(a) == DType::F64 ? 4 : 8) * machine_vectors;
  if (vector_bytes_ == 64 || lanes <= part_lanes) return compute(a);
  std::vector<Value*> parts;
  for (unsigned first = 0; first < lanes; first += part_lanes) {
    parts.push_back(compute(b_.CreateShuffleVector(a, lane_range(first, part_lanes))));
    if (parts.back() == nullptr) return nullptr;
  }
  return concatenate(b_, std::move(parts));
}

Value* ScalarEmitter::exp_up_to_zero(Value* a, bool keeps_subnormals) {
  if (vector_bytes_ < 32 || lanes_of(a) == 0 || (vector_bytes_ == 64 && !inline_all_math_))
    return nullptr;
  VectorMath math(b_, vector_bytes_, vector_bytes_ == 32 ? &held_ : nullptr);
  return in_parts(a, 1, [&](Value* part) { return math.exp_up_to_zero(part, keeps_subnormals); });
}

Value* ScalarEmitter::any_larger(Value* a, Value* b) {
  return b_.CreateSelect(b_.CreateFCmpOGT(a, b), a, b);
}

Value* ScalarEmitter::compare(ScalarOp op, DType dtype, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  static constexpr P kFloat[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT,
                                 P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
  static constexpr P kSigned[] = {P::ICMP_EQ,  P::ICMP_NE,  P::ICMP_SLT,
                                  P::ICMP_SLE, P::ICMP_SGT, P::ICMP_SGE};
  static constexpr P kUnsigned[] = {P::ICMP_EQ,  P::ICMP_NE,  P::ICMP_ULT,
                                    P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE};
  const auto k = static_cast<std::size_t>(op) - static_cast<std::size_t>(ScalarOp::Eq);
  if (is_floating(dtype)) return b_.CreateFCmp(kFloat[k], a, b);
  return b_.CreateICmp(is_signed(dtype) ? kSigned[k] : kUnsigned[k], a, b);
}

Value* ScalarEmitter::maximum(DType dtype, Value* a, Value* b) {
  if (!is_floating(dtype))
    return b_.CreateBinaryIntrinsic(
        is_signed(dtype) ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, a, b);
  // a > b ? a : b keeps a NaN in b; one in a needs a test, which folds away for a constant.
  if (llvm::isa<llvm::Constant>(b)) std::swap(a, b);
  Value* larger = b_.CreateSelect(b_.CreateFCmpOGT(a, b), a, b);
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, larger);
}

Value* ScalarEmitter::minimum(DType dtype, Value* a, Value* b) {
  if (!is_floating(dtype))
    return b_.CreateBinaryIntrinsic(
        is_signed(dtype) ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, a, b);
  if (llvm::isa<llvm::Constant>(b)) std::swap(a, b);
  Value* smaller = b_.CreateSelect(b_.CreateFCmpOLT(a, b), a, b);
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, smaller);
}

Value* ScalarEmitter::binary_float(ScalarOp op, DType dtype, Value* a, Value* b) {
  switch (op) {
    case ScalarOp::Add:
      return b_.CreateFAdd(a, b);
    case ScalarOp::Sub:
      return b_.CreateFSub(a, b);
    case ScalarOp::Mul:
      return b_.CreateFMul(a, b);
    case ScalarOp::Div:
      return divide_float(a, b);
    case ScalarOp::Max:
      return maximum(dtype, a, b);
    case ScalarOp::Min:
      return minimum(dtype, a, b);
    case ScalarOp::Mod:
      return float_modulo(dtype, a, b);
    case ScalarOp::Pow:
      return float_power(dtype, a, b);
    case ScalarOp::Atan2:
      return binary_math(op, dtype, a, b);
    case ScalarOp::Rem:
      return call_lanes(runtime_name(dtype, op), std::array{a, b});
    default:
      HD_CHECK(false, "no code for " + std::string(name_of(op)) + " on floats");
      return nullptr;
  }
}

/// By what is the same in all lanes: multiplied by its reciprocal.
Value* ScalarEmitter::divide_float(Value* a, Value* b) {
  Value* divisor = lanes_of(a) == 0 ? nullptr : llvm::getSplatValue(b);
  if (divisor == nullptr || !divisor->getType()->isFloatTy()) return b_.CreateFDiv(a, b);
  if (const auto* constant = llvm::dyn_cast<llvm::ConstantFP>(divisor)) {
    const double value = constant->getValueAPF().convertToFloat();
    if (!(std::abs(value) >= kLeastDivisor && std::abs(value) <= kMostDivisor))
      return b_.CreateFDiv(a, b);
    int exponent = 0;
    if (std::abs(std::frexp(value, &exponent)) == 0.5) return b_.CreateFMul(a, reals(a, 1 / value));
    return multiply_by_reciprocal(a, b, reals(a, 1 / value));
  }
  if (vector_bytes_ < kBytesWithFma || llvm::isa<llvm::Constant>(divisor))
    return b_.CreateFDiv(a, b);
  if (const auto known = inverses_.find(divisor); known != inverses_.end())
    return multiply_by_reciprocal(a, b, b_.CreateVectorSplat(lanes_of(a), known->second));
  return divide_by_uniform(a, b, divisor);
}

Value* ScalarEmitter::either(Value* condition, const std::function<Value*()>& yes,
                             const std::function<Value*()>& no) {
  llvm::Function* function = b_.GetInsertBlock()->getParent();
  const auto make = [&](const char* name) {
    return llvm::BasicBlock::Create(b_.getContext(), name, function);
  };
  llvm::BasicBlock* blocks[] = {make("either.yes"), make("either.no")};
  llvm::BasicBlock* after = make("either.end");
  b_.CreateCondBr(condition, blocks[0], blocks[1],
                  llvm::MDBuilder(b_.getContext()).createLikelyBranchWeights());
  std::pair<Value*, llvm::BasicBlock*> results[2];
  for (const int k : {0, 1}) {
    b_.SetInsertPoint(blocks[k]);
    Value* result = k == 0 ? yes() : no();
    results[k] = {result, b_.GetInsertBlock()};
    b_.CreateBr(after);
  }
  b_.SetInsertPoint(after);
  llvm::PHINode* result = b_.CreatePHI(results[0].first->getType(), 2);
  for (const auto& [value, block] : results) result->addIncoming(value, block);
  return result;
}

Value* ScalarEmitter::divide_by_uniform(Value* a, Value* b, Value* divisor) {
  Value* size = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, divisor);
  Value* fits = b_.CreateAnd(b_.CreateFCmpOGE(size, reals(size, kLeastDivisor)),
                             b_.CreateFCmpOLE(size, reals(size, kMostDivisor)));
  return either(
      fits,
      [&] {
        Value* inverse = b_.CreateFDiv(reals(divisor, 1), divisor);
        return multiply_by_reciprocal(a, b, b_.CreateVectorSplat(lanes_of(a), inverse));
      },
      [&] { return b_.CreateFDiv(a, b); });
}

/// Corrected by what is left over, the quotient is rounded as a division rounds it. One below 2^-100 in a or in the result,
/// of which too little is left over to be measured, is so within one unit in the last place, as is one on the edge of
/// infinity. |b| lies in [kLeastDivisor, kMostDivisor].
/// Source: Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor" (1990).
Value* ScalarEmitter::multiply_by_reciprocal(Value* a, Value* b, Value* inverse) {
  const auto fma = [&](Value* x, Value* y, Value* z) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
  };
  Value* ratio = b_.CreateFMul(a, inverse);
  Value* left = fma(b_.CreateFNeg(b), ratio, a);
  // Infinities leave nothing that could be measured, and an exact -0 would lose its sign: twice these is the same.
  Value* inexact = b_.CreateFCmpONE(left, b_.CreateFAdd(left, left));
  return b_.CreateSelect(inexact, fma(left, inverse, ratio), ratio);
}

Value* ScalarEmitter::float_modulo(DType dtype, Value* a, Value* b) {
  Value* r = binary_float(ScalarOp::Rem, dtype, a, b);
  Value* zero = reals(r, 0);
  Value* signs_differ = b_.CreateXor(b_.CreateFCmpOLT(r, zero), b_.CreateFCmpOLT(b, zero));
  Value* wrong = b_.CreateAnd(b_.CreateFCmpUNE(r, zero), signs_differ);
  return b_.CreateSelect(wrong, b_.CreateFAdd(r, b), r);
}

Value* ScalarEmitter::simple_power(Value* a, double exponent) {
  if (exponent < 0) return b_.CreateFDiv(reals(a, 1), simple_power(a, -exponent));
  if (exponent == 1) return a;
  if (exponent == 2) return b_.CreateFMul(a, a);
  if (exponent == 3) return b_.CreateFMul(b_.CreateFMul(a, a), a);
  // As a power, that of -0 is 0 and that of -infinity is infinite.
  Value* root = b_.CreateFAdd(b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a), reals(a, 0));
  llvm::Type* type = a->getType();
  return b_.CreateSelect(b_.CreateFCmpOEQ(a, llvm::ConstantFP::getInfinity(type, true)),
                         llvm::ConstantFP::getInfinity(type), root);
}

Value* ScalarEmitter::float_power(DType dtype, Value* a, Value* b) {
  const auto* exponent = llvm::dyn_cast<llvm::Constant>(b);
  if (exponent != nullptr && lanes_of(b) != 0) exponent = exponent->getSplatValue();
  if (const auto* value = llvm::dyn_cast_or_null<llvm::ConstantFP>(exponent)) {
    const double e = value->getType()->isFloatTy() ? value->getValueAPF().convertToFloat()
                                                   : value->getValueAPF().convertToDouble();
    if (is_simple_power(e)) return simple_power(a, e);
  }
  return binary_math(ScalarOp::Pow, dtype, a, b);
}

Value* ScalarEmitter::call_lanes(const std::string& name, std::span<Value* const> operands) {
  llvm::Type* element = operands[0]->getType()->getScalarType();
  llvm::SmallVector<llvm::Type*, 2> parameters(operands.size(), element);
  auto callee =
      module_.getOrInsertFunction(name, llvm::FunctionType::get(element, parameters, false));
  llvm::cast<llvm::Function>(callee.getCallee())->setDoesNotThrow();
  const unsigned lanes = lanes_of(operands[0]);
  if (lanes == 0) return b_.CreateCall(callee, llvm::ArrayRef(operands.data(), operands.size()));

  // Spilled to memory, a loop over the lanes, and back.
  llvm::Function* function = b_.GetInsertBlock()->getParent();
  llvm::IRBuilder<> entry(&function->getEntryBlock(), function->getEntryBlock().begin());
  llvm::Type* whole = operands[0]->getType();
  llvm::SmallVector<Value*, 2> memory;
  for (Value* operand : operands) {
    memory.push_back(entry.CreateAlloca(whole));
    b_.CreateStore(operand, memory.back());
  }
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(b_.getContext(), "lanes", function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "lanes.end", function);
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  llvm::PHINode* lane = b_.CreatePHI(b_.getInt64Ty(), 2);
  lane->addIncoming(b_.getInt64(0), before);
  llvm::SmallVector<Value*, 2> arguments;
  for (Value* source : memory)
    arguments.push_back(b_.CreateLoad(element, b_.CreateGEP(element, source, lane)));
  b_.CreateStore(b_.CreateCall(callee, arguments), b_.CreateGEP(element, memory[0], lane));
  Value* next = b_.CreateAdd(lane, b_.getInt64(1));
  lane->addIncoming(next, body);
  b_.CreateCondBr(b_.CreateICmpULT(next, b_.getInt64(lanes)), body, after);
  b_.SetInsertPoint(after);
  return b_.CreateLoad(whole, memory[0]);
}

}  // namespace heddle::jit::cpu
