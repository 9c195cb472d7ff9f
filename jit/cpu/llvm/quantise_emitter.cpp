// Reals as bytes: what QuantizeLinear and bounds that are bytes are made of, in fewer instructions.
#include <bit>
#include <cmath>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {

using ir::ScalarOp;
using llvm::Value;

namespace {

double least_of(DType byte) { return is_signed(byte) ? -128 : 0; }

/// Of scales whose reciprocals, and bytes times which, are normal.
constexpr float kMostScale = 0x1p60f;

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
  return {b_.CreateFNeg(scale), b_.CreateFDiv(real(1), scale), bound(least_of(to)),
          bound(least_of(to) + 255), b_.CreateFPToSI(zero, b_.getInt32Ty())};
}

Value* ScalarEmitter::quantise(Value* value, const ByteScale& scale, DType to) {
  const unsigned lanes = lanes_of(value);
  Value* least = splat(scale.least, lanes);
  Value* most = splat(scale.most, lanes);
  // NaN becomes the least, whose byte is 0 without a sign.
  Value* bounded = b_.CreateSelect(b_.CreateFCmpOGT(value, least), value, least);
  bounded = b_.CreateSelect(b_.CreateFCmpOLT(bounded, most), bounded, most);
  const auto fma = [&](Value* x, Value* y, Value* z) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
  };
  Value* inverse = splat(scale.inverse, lanes);
  Value* ratio = b_.CreateFMul(bounded, inverse);
  ratio = fma(fma(splat(scale.negative, lanes), ratio, bounded), inverse, ratio);
  // Next to it floats are integers apart, so that the addition rounds, and the low byte counts them.
  constexpr float kRounding = 0x1.8p23f;
  Value* rounded = b_.CreateFAdd(ratio, llvm::ConstantFP::get(value->getType(), kRounding));
  Value* bits = b_.CreateBitCast(rounded, value->getType()->getWithNewType(b_.getInt32Ty()));
  Value* zero = b_.CreateTrunc(scale.zero, b_.getInt8Ty());
  Value* byte = b_.CreateAdd(b_.CreateTrunc(bits, compute_type(to, lanes)), splat(zero, lanes));
  if (!is_signed(to)) return byte;
  return b_.CreateSelect(b_.CreateFCmpUNO(value, value), integers_like(byte, 0), byte);
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
Value* NestEmitter::quantised(const ConvertStmt& s) {
  if (lanes_ == 0 || target_.vector_bytes < kBytesWithFma ||
      (s.dtype != DType::U8 && s.dtype != DType::I8))
    return nullptr;
  double low = 0, high = 0;
  Value* zero = nullptr;
  Value* scale = nullptr;
  auto at = beside_number(s.operand, ScalarOp::Min, high);
  if (at) at = beside_number(*at, ScalarOp::Max, low);
  if (at) at = beside_uniform(*at, ScalarOp::Add, zero);
  const auto round = at ? applied_.find(*at) : applied_.end();
  if (round == applied_.end() || round->second->op != ScalarOp::Round) return nullptr;
  at = beside_uniform(round->second->operands[0], ScalarOp::Div, scale);
  const double least = least_of(s.dtype);
  if (!at || low != least || high != least + 255 || lanes_of(value(*at)) == 0) return nullptr;
  if (!llvm::isa<llvm::Constant>(scale) || !llvm::isa<llvm::Constant>(zero))
    return quantised_if_fits(value(*at), scale, zero, s.dtype);
  const double origin = number_of(zero);
  const double step = number_of(scale);
  const bool fits = origin >= low && origin <= high && origin == std::floor(origin) &&
                    step >= 1 / kMostScale && step <= kMostScale;
  if (!fits) return nullptr;
  // The least byte stands for 0 and less: a relu before it changes nothing.
  double bound = 0;
  const auto below = origin == least ? beside_number(*at, ScalarOp::Max, bound) : std::nullopt;
  if (below && bound == 0) at = below;
  return scalars_.quantise(value(*at), scalars_.byte_scale(scale, zero, s.dtype), s.dtype);
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
Value* NestEmitter::quantised_if_fits(Value* x, Value* scale, Value* zero, DType to) {
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
  Value* fast = scalars_.quantise(x, by, to);
  b_.CreateBr(after);
  b_.SetInsertPoint(beyond);
  const unsigned lanes = lanes_of(x);
  Value* slow = b_.CreateFDiv(x, widened(scale, lanes));
  slow = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, slow);
  slow = b_.CreateFAdd(slow, widened(zero, lanes));
  slow = scalars_.maximum(DType::F32, slow, widened(real(low), lanes));
  slow = scalars_.minimum(DType::F32, slow, widened(real(low + 255), lanes));
  slow = scalars_.convert(slow, DType::F32, to);
  llvm::BasicBlock* beyond_end = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* byte = b_.CreatePHI(fast->getType(), 2);
  byte->addIncoming(fast, inside);
  byte->addIncoming(slow, beyond_end);
  return byte;
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
