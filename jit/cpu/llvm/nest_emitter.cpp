#include "jit/cpu/llvm/nest_emitter.h"

#include <algorithm>
#include <cmath>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Triple.h>

#include "base/check.h"

namespace heddle::jit::cpu {
namespace {

using ir::ScalarOp;
using llvm::Value;

bool is_comparison(ScalarOp op) { return op >= ScalarOp::Eq && op <= ScalarOp::Ge; }

/// `op` with its operands exchanged.
ScalarOp mirrored(ScalarOp op) {
  switch (op) {
    case ScalarOp::Lt:
      return ScalarOp::Gt;
    case ScalarOp::Le:
      return ScalarOp::Ge;
    case ScalarOp::Gt:
      return ScalarOp::Lt;
    case ScalarOp::Ge:
      return ScalarOp::Le;
    default:
      return op;
  }
}

}  // namespace

void set_target_attributes(llvm::Function& function, const CodegenTarget& target) {
  function.addFnAttr("target-cpu", target.cpu);
  function.addFnAttr("target-features", target.features);
  const std::string width = std::to_string(8 * target.vector_bytes);
  function.addFnAttr("prefer-vector-width", width);
  function.addFnAttr("min-legal-vector-width", width);
  // Else vectors that do not fit the registers are kept across two cache lines each.
  function.addFnAttr(llvm::Attribute::getWithStackAlignment(
      function.getContext(), llvm::Align(static_cast<std::uint64_t>(target.vector_bytes))));
}

NestEmitter::NestEmitter(const Nest& nest, const CodegenTarget& target,
                         llvm::IRBuilderBase& builder, llvm::Module& module)
    : nest_(nest),
      target_(target),
      b_(builder),
      module_(module),
      scalars_(builder, module, target.vector_bytes,
               target.vector_bytes == 64 && has_feature(target, "avx512bf16") &&
                   has_feature(target, "avx512dq") &&
                   llvm::Triple(module.getTargetTriple()).isX86(),
               has_byte_tables(target)),
      base_lanes_(static_cast<unsigned>(target.vector_bytes / 4)),
      maxima_(row_maxima(nest)),
      strips_(row_strips(nest, target.vector_bytes)),
      row_fetches_(row_fetches(nest, strips_.fetched())) {}

void NestEmitter::emit() {
  llvm::Type* pointer = b_.getPtrTy();
  llvm::Type* index = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(),
                                       {pointer, pointer, index, index, pointer, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, kEntryName, module_);
  function_->setDoesNotThrow();
  set_target_attributes(*function_, target_);
  // The first two point to memory that the kernel never writes.
  for (unsigned k : {0u, 1u}) {
    function_->addParamAttr(k, llvm::Attribute::ReadOnly);
    function_->addParamAttr(k, llvm::Attribute::NoAlias);
  }
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function_));
  emit_prologue();
  llvm::BasicBlock* entry = b_.GetInsertBlock();
  llvm::BasicBlock* body = llvm::BasicBlock::Create(b_.getContext(), "body", function_);
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  emit_rows();
  b_.CreateRetVoid();
  configure_amx(entry);
}

void NestEmitter::emit_prologue() {
  status_ = function_->getArg(5);
  scratch_ = function_->getArg(4);
  auto* zeros = llvm::ArrayType::get(b_.getInt64Ty(), 2);
  zeros_ = new llvm::GlobalVariable(module_, zeros, true, llvm::GlobalValue::PrivateLinkage,
                                    llvm::ConstantAggregateZero::get(zeros), "zeros");
  const std::uint32_t globals = nest_.global_count();
  for (std::uint32_t k = 0; k < globals; ++k) {
    Value* slot = b_.CreateConstGEP1_32(b_.getPtrTy(), function_->getArg(0), k);
    buffers_.push_back(b_.CreateLoad(b_.getPtrTy(), slot, nest_.buffers[k].name));
  }
  for (std::uint32_t k = 0; k < nest_.size_count; ++k) {
    Value* slot = b_.CreateConstGEP1_32(b_.getInt64Ty(), function_->getArg(1), k);
    const Symbol symbol{Symbol::Kind::Size, k};
    set_symbol(symbol, b_.CreateLoad(b_.getInt64Ty(), slot, symbol.to_string()));
  }
  emit_locals();
}

void NestEmitter::emit_locals() {
  const std::vector<SymExpr> offsets = scratch_offsets(nest_);
  std::size_t next_offset = 0;
  for (std::size_t k = nest_.global_count(); k < nest_.buffers.size(); ++k) {
    const NestBuffer& buffer = nest_.buffers[k];
    if (buffer.max_count == 0) {
      Value* offset = index_value(offsets[next_offset++]);
      buffers_.push_back(b_.CreateGEP(b_.getInt8Ty(), scratch_, offset, buffer.name));
      continue;
    }
    auto* type =
        llvm::ArrayType::get(scalars_.storage_type(buffer.dtype, 0),
                             static_cast<std::uint64_t>(buffer.max_count * strips_.held()));
    llvm::AllocaInst* memory = b_.CreateAlloca(type, nullptr, buffer.name);
    memory->setAlignment(llvm::Align(64));
    buffers_.push_back(memory);
  }
}

void NestEmitter::block(std::span<const Stmt> statements) {
  for (const Stmt& statement : statements) {
    if (std::find(hoisted_.begin(), hoisted_.end(), &statement) != hoisted_.end()) continue;
    std::visit(*this, statement.node);
  }
}

Value* NestEmitter::value(ScalarId id) const {
  const auto found = values_.find(id);
  HD_CHECK(found != values_.end(), "%" + std::to_string(id) + " has no value");
  return found->second;
}

Value* NestEmitter::widened(Value* v, unsigned lanes) { return scalars_.splat(v, lanes); }

void NestEmitter::operator()(const ConstStmt& s) {
  dtypes_[s.result] = s.dtype;
  if (s.dtype == DType::F32) numbers_[s.result] = s.number;
  define(s.result, scalars_.constant(s.dtype, s.number, s.integer));
}

/// Read once, before all iterations.
void NestEmitter::operator()(const GivenStmt& s) {
  dtypes_[s.result] = s.dtype;
  const auto known = std::ranges::find_if(given_, [&](const auto& given) {
    return given.parameter == s.parameter && given.dtype == s.dtype && given.range == s.range;
  });
  if (known != given_.end()) return define(s.result, known->value);
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  b_.SetInsertPoint(function_->getEntryBlock().getTerminator());
  Value* number =
      b_.CreateTrunc(symbols_.at({Symbol::Kind::Size, s.parameter}).value, b_.getInt32Ty());
  if (s.dtype == DType::F32) {
    number = b_.CreateBitCast(number, b_.getFloatTy());
    if (s.range == GivenStmt::Range::Scale)
      scalars_.note_divisor(number,
                            b_.CreateFDiv(llvm::ConstantFP::get(b_.getFloatTy(), 1), number));
  }
  given_.push_back({s.parameter, s.dtype, s.range, number});
  define(s.result, number);
}

/// The range of a number that is given; nothing of any other value.
std::optional<GivenStmt::Range> NestEmitter::range_of(Value* value) const {
  const auto known = std::ranges::find(given_, value, &Given::value);
  return known == given_.end() ? std::nullopt : std::optional(known->range);
}

void NestEmitter::operator()(const ApplyStmt& s) {
  dtypes_[s.result] = s.dtype;
  applied_[s.result] = &s;
  if (lanes_ != 0 && is_comparison(s.op)) {
    Value* truth = compare_lane_index(s.op, s.operands[0], s.operands[1]);
    if (truth == nullptr) truth = compare_lane_index(mirrored(s.op), s.operands[1], s.operands[0]);
    if (truth != nullptr) return define(s.result, truth);
  }
  unsigned lanes = 0;
  for (ScalarId id : s.operands) lanes = std::max(lanes, lanes_of(value(id)));
  Values operands;
  for (ScalarId id : s.operands) operands.push_back(widened(value(id), lanes));
  const DType operand = dtypes_.at(s.operands[s.op == ScalarOp::Select ? 1 : 0]);
  if (s.op == ScalarOp::Exp && operand == DType::F32 &&
      (s.up_to_zero || maxima_.differences.count(s.operands[0]) != 0)) {
    Value* power = scalars_.exp_up_to_zero(operands[0], !s.up_to_zero);
    if (power != nullptr) return define(s.result, power);
  }
  define(s.result, scalars_.apply(s.op, operand, operands));
}

/// first + lane compared with a uniform value: lane against the distance, in 32 bits. Null if the operands
/// are of another form.
Value* NestEmitter::compare_lane_index(ScalarOp op, ScalarId index, ScalarId uniform) {
  const auto first = lane_index_.find(index);
  if (first == lane_index_.end() || lanes_of(value(index)) == 0 || lanes_of(value(uniform)) != 0)
    return nullptr;
  return scalars_.apply(op, DType::I32,
                        Values{lane_numbers(), lane_distance(first->second, value(uniform))});
}

void NestEmitter::operator()(const ConvertStmt& s) {
  dtypes_[s.result] = s.dtype;
  if (s.dtype == DType::I32 && dtypes_.at(s.operand) == DType::U8)
    from_bytes_[s.result] = value(s.operand);
  byte_numbers_.erase(s.result);
  widened_bytes_.erase(s.result);
  if (s.dtype == DType::I32 && byte_numbers_.contains(s.operand))
    widened_bytes_[s.result] = s.operand;
  const QuantisedByte made = quantised(s);
  if (made.byte != nullptr) {
    byte_numbers_[s.result] = made;
    return define(s.result, made.byte);
  }
  Value* known = clamped(s);
  if (known == nullptr) known = number_of_byte(s);
  define(s.result, known != nullptr
                       ? known
                       : scalars_.convert(value(s.operand), dtypes_.at(s.operand), s.dtype));
}

void NestEmitter::operator()(const BitsStmt& s) {
  dtypes_[s.result] = s.dtype;
  Value* number = value(s.operand);
  llvm::Type* bits = b_.getIntNTy(number->getType()->getScalarSizeInBits());
  define(s.result, b_.CreateBitCast(number, number->getType()->getWithNewType(bits)));
}

void NestEmitter::operator()(const IndexStmt& s) {
  dtypes_[s.result] = DType::I64;
  define(s.result, index_value(s.index));
  lane_index_.erase(s.result);
  if (lanes_ == 0) return;
  if (const auto linear = s.index.linear_in(vector_axis_);
      linear && linear->coefficient.is_constant(1) && !varies(linear->rest))
    lane_index_[s.result] = b_.CreateNSWAdd(index_value(linear->rest), vector_base_);
}

void NestEmitter::operator()(const BindStmt& s) {
  Value* v = value(s.operand);
  constexpr std::int64_t kLastByte = 255;
  if (const auto byte = from_bytes_.find(s.operand);
      byte != from_bytes_.end() && s.low.is_constant(0) && s.high.is_constant(kLastByte)) {
    byte_symbols_[s.symbol] = byte->second;
    return set_symbol(s.symbol, b_.CreateSExt(v, with_lanes(b_.getInt64Ty(), lanes_of(v))));
  }
  Value* low = index_value(s.low);
  Value* high = index_value(s.high);
  const auto fits = [](const SymExpr& bound) {
    return bound.is_constant() && bound.constant() == static_cast<std::int32_t>(bound.constant());
  };
  // Of 32 bits what is compared and clamped may stay, and an address then shows LLVM what it was extended from.
  if (dtypes_.at(s.operand) == DType::I32) {
    if (fits(s.low) && fits(s.high)) {
      low = b_.CreateTrunc(low, b_.getInt32Ty());
      high = b_.CreateTrunc(high, b_.getInt32Ty());
    } else {
      v = b_.CreateSExt(v, with_lanes(b_.getInt64Ty(), lanes_of(v)));
    }
  }
  const unsigned lanes = std::max({lanes_of(v), lanes_of(low), lanes_of(high)});
  Value* wide_low = widened(low, lanes);
  Value* wide_high = widened(high, lanes);
  v = widened(v, lanes);
  const auto bind = [&](Value* index) {
    set_symbol(s.symbol, b_.CreateSExt(index, with_lanes(b_.getInt64Ty(), lanes)));
  };
  if (s.check != 0) {
    const bool from_zero = s.low.is_constant(0) && provably_nonnegative(s.high, nest_.facts);
    Value* bad = from_zero
                     ? b_.CreateICmpUGT(v, wide_high)
                     : b_.CreateOr(b_.CreateICmpSLT(v, wide_low), b_.CreateICmpSGT(v, wide_high));
    if (lanes == 0 && lanes_ != 0 && active_ != nullptr && s.mask == kNoScalar) {
      // Some lane of the tail is always within the extent.
    } else if (lanes_ != 0) {
      bad = widened(bad, lanes_);
      if (Value* mask = lane_mask(s.mask)) bad = b_.CreateAnd(bad, mask);
    } else if (s.mask != kNoScalar) {
      bad = b_.CreateAnd(bad, value(s.mask));
    }
    report(bad, s.check, v, wide_high);
    // Whoever comes here is within.
    if (s.mask == kNoScalar && (lanes == 0 || active_ == nullptr)) return bind(v);
  }
  Value* upper = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v, wide_high);
  bind(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, upper, wide_low));
}

/// The first failed check stays in the status word, and the kernel ends: its results are those of a run that fails.
/// Nothing lives across the call, so that it costs the loop around it no registers.
void NestEmitter::report(Value* bad, std::int32_t code, Value* index, Value* last) {
  const unsigned lanes = lanes_of(bad);
  const auto first_bad = [&](Value* values) {
    if (lanes_of(values) == 0) return b_.CreateSExt(values, b_.getInt64Ty());
    Value* bits = b_.CreateBitCast(bad, b_.getIntNTy(lanes));
    Value* lane = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, bits, b_.getTrue());
    return b_.CreateSExt(b_.CreateExtractElement(values, lane), b_.getInt64Ty());
  };
  auto callee = module_.getOrInsertFunction(
      "heddle_report_index",
      llvm::FunctionType::get(b_.getVoidTy(),
                              {b_.getPtrTy(), b_.getInt32Ty(), b_.getInt64Ty(), b_.getInt64Ty()},
                              false));
  llvm::cast<llvm::Function>(callee.getCallee())->setDoesNotThrow();
  when(
      lanes == 0 ? bad : b_.CreateOrReduce(bad),
      [&] {
        b_.CreateCall(callee, {status_, b_.getInt32(static_cast<std::uint32_t>(code)),
                               first_bad(index), first_bad(last)});
        b_.CreateRetVoid();
        b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "unreached", function_));
      },
      true);
}

void NestEmitter::operator()(const IfStmt& s) {
  when(value(s.condition), [&] { block(*s.body); }, false);
}

}  // namespace heddle::jit::cpu
