// Reals as bytes: what QuantizeLinear and bounds that are bytes are made of, in fewer instructions.
#include <bit>
#include <cmath>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <numeric>

#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {

using ir::ScalarOp;
using llvm::Value;

namespace {

double least_of(DType byte) { return is_signed(byte) ? -128 : 0; }

/// Next to it floats are integers apart, so that adding it rounds, and the low byte counts them.
constexpr float kRounding = 0x1.8p23f;

/// Of scales whose reciprocals, and bytes times which, are normal.
constexpr float kMostScale = 0x1p60f;

/// Of 32 bits in a register.
constexpr unsigned kLanes = 16;

/// Lanes [first, first + count).
Value* part(llvm::IRBuilderBase& b, Value* value, unsigned first, unsigned count) {
  std::vector<int> lanes(count);
  std::iota(lanes.begin(), lanes.end(), static_cast<int>(first));
  return b.CreateShuffleVector(value, lanes);
}

/// The low bytes of i32, of 32 lanes or a multiple by a power of two: two registers at a time by vpermi2b, where vpmovdb takes two
/// operations for each.
Value* low_bytes(llvm::IRBuilderBase& b, Value* wide) {
  const unsigned lanes = lanes_of(wide);
  if (lanes > 2 * kLanes) {
    Value* low = low_bytes(b, part(b, wide, 0, lanes / 2));
    Value* high = low_bytes(b, part(b, wide, lanes / 2, lanes / 2));
    std::vector<int> all(lanes);
    std::iota(all.begin(), all.end(), 0);
    return b.CreateShuffleVector(low, high, all);
  }
  constexpr unsigned kEach = 4;
  std::vector<std::uint8_t> places(kEach * kLanes);
  for (unsigned k = 0; k < lanes; ++k) places[k] = static_cast<std::uint8_t>(kEach * k);
  auto* bytes = llvm::FixedVectorType::get(b.getInt8Ty(), kEach * kLanes);
  Value* first = b.CreateBitCast(part(b, wide, 0, kLanes), bytes);
  Value* second = b.CreateBitCast(part(b, wide, kLanes, kLanes), bytes);
  Value* at = llvm::ConstantDataVector::get(b.getContext(), places);
  Value* both =
      b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_qi_512, {}, {first, at, second});
  return part(b, both, 0, lanes);
}

/// The number that a value is known to be; NaN where it is not.
double number_of(Value* value) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantFP>(value);
  return constant == nullptr ? std::nan("") : constant->getValueAPF().convertToFloat();
}

}  // namespace

ByteScale ScalarEmitter::byte_scale(Value* scale, Value* zero, DType to) {
  const auto real = [&](double of) { return llvm::ConstantFP::get(b_.getFloatTy(), of); };
  const auto bound = [&](double byte) {
    return b_.CreateFMul(b_.CreateFSub(real(byte), zero), scale);
  };
  return {b_.CreateFNeg(scale),
          b_.CreateFDiv(real(1), scale),
          bound(least_of(to)),
          bound(least_of(to) + 255),
          b_.CreateFPToSI(zero, b_.getInt32Ty()),
          b_.CreateFSub(real(kRounding), zero)};
}

QuantisedByte ScalarEmitter::quantise(Value* value, const ByteScale& scale, DType to) {
  const unsigned lanes = lanes_of(value);
  Value* least = splat(scale.least, lanes);
  Value* most = splat(scale.most, lanes);
  // NaN becomes the least, whose byte is 0 without a sign.
  Value* bounded = b_.CreateSelect(b_.CreateFCmpOGT(value, least), value, least);
  bounded = b_.CreateSelect(b_.CreateFCmpOLT(bounded, most), bounded, most);
  const auto fma = [&](Value* x, Value* y, Value* z) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
  };
  Value* ratio = bounded;
  if (number_of(scale.inverse) != 1) {
    Value* inverse = splat(scale.inverse, lanes);
    ratio = b_.CreateFMul(bounded, inverse);
    ratio = fma(fma(splat(scale.negative, lanes), ratio, bounded), inverse, ratio);
  }
  Value* rounded = b_.CreateFAdd(ratio, llvm::ConstantFP::get(value->getType(), kRounding));
  Value* bits = b_.CreateBitCast(rounded, value->getType()->getWithNewType(b_.getInt32Ty()));
  Value* zero = b_.CreateTrunc(scale.zero, b_.getInt8Ty());
  Value* low = permutes_bytes_ && lanes >= 2 * kLanes
                   ? low_bytes(b_, bits)
                   : b_.CreateTrunc(bits, compute_type(to, lanes));
  Value* byte = b_.CreateAdd(low, splat(zero, lanes));
  Value* number = b_.CreateFSub(rounded, splat(scale.origin, lanes));
  if (!is_signed(to)) return {byte, number, rounded, scale.origin};
  Value* is_nan = b_.CreateFCmpUNO(value, value);
  return {b_.CreateSelect(is_nan, integers_like(byte, 0), byte),
          b_.CreateSelect(is_nan, llvm::Constant::getNullValue(number->getType()), number)};
}

std::optional<ScalarId> NestEmitter::beside_number(ScalarId id, ScalarOp op, double& number) const {
  const auto made = applied_.find(id);
  if (made == applied_.end() || made->second->op != op || made->second->dtype != DType::F32)
    return std::nullopt;
  const std::vector<ScalarId>& operands = made->second->operands;
  for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
    const auto found = numbers_.find(operands[k]);
    if (found == numbers_.end() || (k == 0 && op == ScalarOp::Div)) continue;
    number = found->second;
    return operands[1 - k];
  }
  return std::nullopt;
}

std::optional<ScalarId> NestEmitter::beside_uniform(ScalarId id, ScalarOp op, Value*& uniform) {
  const auto made = applied_.find(id);
  if (made == applied_.end() || made->second->op != op || made->second->dtype != DType::F32)
    return std::nullopt;
  const std::vector<ScalarId>& operands = made->second->operands;
  for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
    if (lanes_of(value(operands[k])) != 0 || (k == 0 && op == ScalarOp::Div)) continue;
    uniform = value(operands[k]);
    return operands[1 - k];
  }
  return std::nullopt;
}

/// What QuantizeLinear is: min(max(round(x / scale) + zero, least), largest) as a byte, with one scale and zero for all lanes and
/// numbers for the bounds. Null where it is anything else. What it was made of is emitted already, and dropped if nothing else
/// reads it.
QuantisedByte NestEmitter::quantised(const ConvertStmt& s) {
  if (lanes_ == 0 || target_.vector_bytes < kBytesWithFma ||
      (s.dtype != DType::U8 && s.dtype != DType::I8))
    return {};
  double low = 0, high = 0;
  Value* zero = nullptr;
  Value* scale = nullptr;
  auto at = beside_number(s.operand, ScalarOp::Min, high);
  if (at) at = beside_number(*at, ScalarOp::Max, low);
  if (at) at = beside_uniform(*at, ScalarOp::Add, zero);
  const auto round = at ? applied_.find(*at) : applied_.end();
  if (round == applied_.end() || round->second->op != ScalarOp::Round) return {};
  at = beside_uniform(round->second->operands[0], ScalarOp::Div, scale);
  if (!at) {  // what was divided before
    at = round->second->operands[0];
    scale = llvm::ConstantFP::get(b_.getFloatTy(), 1);
  }
  const double least = least_of(s.dtype);
  if (low != least || high != least + 255 || lanes_of(value(*at)) == 0) return {};
  if (!is_scale(scale) || !is_zero_point(zero, least)) {
    if (llvm::isa<llvm::Constant>(scale) && llvm::isa<llvm::Constant>(zero)) return {};
    return quantised_if_fits(value(*at), scale, zero, s.dtype);
  }
  // The least byte stands for 0 and less: a relu before it changes nothing.
  double bound = 0;
  const auto below =
      number_of(zero) == least ? beside_number(*at, ScalarOp::Max, bound) : std::nullopt;
  if (below && bound == 0) at = below;
  return scalars_.quantise(value(*at), byte_scale_before(scale, zero, s.dtype), s.dtype);
}

bool NestEmitter::is_scale(Value* value) const {
  const double number = number_of(value);
  return range_of(value) == GivenStmt::Range::Scale ||
         (number >= 1 / kMostScale && number <= kMostScale);
}

/// Whether the value is an integer from `least` to `least` + 255.
bool NestEmitter::is_zero_point(Value* value, double least) const {
  const double number = number_of(value);
  return range_of(value) == (least < 0 ? GivenStmt::Range::Signed : GivenStmt::Range::Unsigned) ||
         (number >= least && number <= least + 255 && number == std::floor(number));
}

ByteScale NestEmitter::byte_scale_before(Value* scale, Value* zero, DType to) {
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  if (llvm::BasicBlock* before = block_before(scale, zero))
    b_.SetInsertPoint(before->getTerminator());
  return scalars_.byte_scale(scale, zero, to);
}

/// Where what follows from two values of the kernel can be computed: at the end of the block that both come from, if that is
/// done; else here.
llvm::BasicBlock* NestEmitter::block_before(Value* a, Value* b) const {
  const auto* first = llvm::dyn_cast<llvm::Instruction>(a);
  const auto* second = llvm::dyn_cast<llvm::Instruction>(b);
  if (first == nullptr) first = second;
  if (second == nullptr) second = first;
  if (first == nullptr || first->getParent() != second->getParent()) return nullptr;
  auto* found = const_cast<llvm::BasicBlock*>(first->getParent());
  return found->getTerminator() == nullptr ? nullptr : found;
}

/// The same with a scale or a zero that is read: what they have to be is asked for all lanes at once, and else the parts are
/// computed as they are written.
QuantisedByte NestEmitter::quantised_if_fits(Value* x, Value* scale, Value* zero, DType to) {
  const auto real = [&](double of) { return llvm::ConstantFP::get(b_.getFloatTy(), of); };
  const auto block = [&](const char* name) {
    return llvm::BasicBlock::Create(b_.getContext(), name, function_);
  };
  const double low = least_of(to);
  Value* fits = nullptr;
  ByteScale by;
  {
    const llvm::IRBuilderBase::InsertPointGuard guard(b_);
    if (llvm::BasicBlock* before = block_before(scale, zero))
      b_.SetInsertPoint(before->getTerminator());
    fits = b_.CreateAnd(b_.CreateFCmpOGE(scale, real(1 / kMostScale)),
                        b_.CreateFCmpOLE(scale, real(kMostScale)));
    fits = b_.CreateAnd(fits, b_.CreateFCmpOGE(zero, real(low)));
    fits = b_.CreateAnd(fits, b_.CreateFCmpOLE(zero, real(low + 255)));
    Value* whole = b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, zero);
    fits = b_.CreateAnd(fits, b_.CreateFCmpOEQ(whole, zero));
    by = scalars_.byte_scale(scale, zero, to);
  }
  llvm::BasicBlock* inside = block("quantise.inside");
  llvm::BasicBlock* beyond = block("quantise.beyond");
  llvm::BasicBlock* after = block("quantise.end");
  b_.CreateCondBr(fits, inside, beyond);
  b_.SetInsertPoint(inside);
  const QuantisedByte fast = scalars_.quantise(x, by, to);
  b_.CreateBr(after);
  b_.SetInsertPoint(beyond);
  const unsigned lanes = lanes_of(x);
  Value* slow = b_.CreateFDiv(x, widened(scale, lanes));
  slow = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, slow);
  slow = b_.CreateFAdd(slow, widened(zero, lanes));
  slow = scalars_.maximum(DType::F32, slow, widened(real(low), lanes));
  slow = scalars_.minimum(DType::F32, slow, widened(real(low + 255), lanes));
  slow = scalars_.convert(slow, DType::F32, to);
  Value* slow_number = scalars_.convert(slow, to, DType::F32);
  llvm::BasicBlock* beyond_end = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  const auto either = [&](Value* of_fast, Value* of_slow) {
    llvm::PHINode* phi = b_.CreatePHI(of_fast->getType(), 2);
    phi->addIncoming(of_fast, inside);
    phi->addIncoming(of_slow, beyond_end);
    return phi;
  };
  Value* byte = either(fast.byte, slow);
  return {byte, either(fast.number, slow_number)};
}

/// What DequantizeLinear makes of a byte that was just quantised, less its zero point if there is one: no byte is made for it. Null
/// where `s` is anything else.
Value* NestEmitter::number_of_byte(const ConvertStmt& s) {
  if (s.dtype != DType::F32) return nullptr;
  const auto number = [&](ScalarId id) -> const QuantisedByte* {
    const auto wide = widened_bytes_.find(id);
    const auto found = byte_numbers_.find(wide == widened_bytes_.end() ? id : wide->second);
    return found == byte_numbers_.end() ? nullptr : &found->second;
  };
  if (const QuantisedByte* found = number(s.operand)) return found->number;
  const auto made = applied_.find(s.operand);
  if (made == applied_.end() || made->second->op != ScalarOp::Sub ||
      made->second->dtype != DType::I32)
    return nullptr;
  const QuantisedByte* found = number(made->second->operands[0]);
  if (found == nullptr) return nullptr;
  Value* zero = value(made->second->operands[1]);
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(zero);
  constexpr std::int64_t kMostExact = std::int64_t{1} << 22;
  const bool fits = known != nullptr
                        ? std::abs(known->getSExtValue()) <= kMostExact
                        : range_of(zero).value_or(GivenStmt::Range::Any) != GivenStmt::Range::Any;
  if (!fits) return nullptr;
  Value* real = nullptr;
  {
    const llvm::IRBuilderBase::InsertPointGuard guard(b_);
    if (llvm::BasicBlock* before = block_before(zero, zero))
      b_.SetInsertPoint(before->getTerminator());
    real = b_.CreateSIToFP(zero, b_.getFloatTy());
  }
  const unsigned lanes = lanes_of(found->number);
  // Integers below 2^24, whose sum and difference are exact.
  const auto is_known_early = [&](Value* a, Value* b) {
    return (llvm::isa<llvm::Constant>(a) && llvm::isa<llvm::Constant>(b)) || block_before(a, b);
  };
  if (found->rounded == nullptr || !is_known_early(found->origin, real))
    return b_.CreateFSub(found->number, widened(real, lanes));
  Value* origin = nullptr;
  {
    const llvm::IRBuilderBase::InsertPointGuard guard(b_);
    if (llvm::BasicBlock* before = block_before(found->origin, real))
      b_.SetInsertPoint(before->getTerminator());
    origin = b_.CreateFAdd(found->origin, real);
  }
  return b_.CreateFSub(found->rounded, widened(origin, lanes));
}

/// min(max(x, low), high) as a byte, with numbers that are bytes for bounds: they leave nothing to saturate, and NaN is looked for
/// once. Null where it is anything else.
Value* NestEmitter::clamped(const ConvertStmt& s) {
  if (lanes_ == 0 || !is_byte(s.dtype)) return nullptr;
  double low = 0, high = 0;
  auto at = beside_number(s.operand, ScalarOp::Min, high);
  if (at) at = beside_number(*at, ScalarOp::Max, low);
  const double least = is_signed(s.dtype) ? -128 : 0;
  if (!at || !(least <= low && low <= high && high <= least + 255)) return nullptr;
  Value* x = value(*at);
  if (lanes_of(x) == 0) return nullptr;
  const auto number = [&](double of) { return llvm::ConstantFP::get(x->getType(), of); };
  Value* bounded = b_.CreateSelect(b_.CreateFCmpOGT(x, number(low)), x, number(low));
  bounded = b_.CreateSelect(b_.CreateFCmpOLT(bounded, number(high)), bounded, number(high));
  Value* wide = b_.CreateFPToSI(bounded, x->getType()->getWithNewType(b_.getInt32Ty()));
  Value* byte = b_.CreateTrunc(wide, x->getType()->getWithNewType(b_.getInt8Ty()));
  if (low == 0) return byte;
  return b_.CreateSelect(b_.CreateFCmpUNO(x, x), llvm::Constant::getNullValue(byte->getType()),
                         byte);
}

}  // namespace heddle::jit::cpu
