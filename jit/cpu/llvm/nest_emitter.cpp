#include "jit/cpu/llvm/nest_emitter.h"

#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "base/check.h"

namespace heddle::jit::cpu {
namespace {

using ir::ScalarOp;
using llvm::Value;

ScalarOp scalar_of(ir::ReduceOp op) {
  switch (op) {
    case ir::ReduceOp::Sum:
      return ScalarOp::Add;
    case ir::ReduceOp::Prod:
      return ScalarOp::Mul;
    case ir::ReduceOp::Max:
      return ScalarOp::Max;
    case ir::ReduceOp::Min:
      return ScalarOp::Min;
    case ir::ReduceOp::And:
      return ScalarOp::And;
    case ir::ReduceOp::Or:
      return ScalarOp::Or;
    default:
      HD_CHECK(false, "a store combines with a plain reduction");
      return ScalarOp::Add;
  }
}

std::vector<int> reversed_lanes(unsigned lanes) {
  std::vector<int> order(lanes);
  for (unsigned k = 0; k < lanes; ++k) order[k] = static_cast<int>(lanes - 1 - k);
  return order;
}

}  // namespace

NestEmitter::NestEmitter(const Nest& nest, const CodegenTarget& target,
                         llvm::IRBuilderBase& builder, llvm::Module& module)
    : nest_(nest),
      target_(target),
      b_(builder),
      module_(module),
      scalars_(builder, module, target.vector_bytes == 64),
      base_lanes_(static_cast<unsigned>(target.vector_bytes / 4)) {}

void NestEmitter::emit() {
  llvm::Type* pointer = b_.getPtrTy();
  llvm::Type* index = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(),
                                       {pointer, pointer, index, index, pointer, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, kEntryName, module_);
  function_->setDoesNotThrow();
  function_->addFnAttr("target-cpu", target_.cpu);
  function_->addFnAttr("target-features", target_.features);
  const std::string width = std::to_string(8 * target_.vector_bytes);
  function_->addFnAttr("prefer-vector-width", width);
  function_->addFnAttr("min-legal-vector-width", width);
  // The first two point to memory that the kernel never writes.
  for (unsigned k : {0u, 1u}) {
    function_->addParamAttr(k, llvm::Attribute::ReadOnly);
    function_->addParamAttr(k, llvm::Attribute::NoAlias);
  }
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function_));
  emit_prologue();
  loop(function_->getArg(2), function_->getArg(3), 1, {}, [&](Value* p, const Values&) {
    symbols_[nest_.parallel_axis] = p;
    block(nest_.body);
    return Values{};
  });
  b_.CreateRetVoid();
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
    symbols_[symbol] = b_.CreateLoad(b_.getInt64Ty(), slot, symbol.to_string());
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
    auto* type = llvm::ArrayType::get(scalars_.storage_type(buffer.dtype, 0),
                                      static_cast<std::uint64_t>(buffer.max_count));
    llvm::AllocaInst* memory = b_.CreateAlloca(type, nullptr, buffer.name);
    memory->setAlignment(llvm::Align(64));
    buffers_.push_back(memory);
  }
}

void NestEmitter::block(const Block& statements) {
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

bool NestEmitter::varies(const SymExpr& expr) const {
  std::vector<Symbol> symbols;
  expr.collect_symbols(symbols);
  for (Symbol s : symbols) {
    const auto found = symbols_.find(s);
    if (found != symbols_.end() && lanes_of(found->second) != 0) return true;
  }
  return false;
}

Value* NestEmitter::index_value(const SymExpr& expr) {
  if (expr.is_constant()) return b_.getInt64(static_cast<std::uint64_t>(expr.constant()));
  if (expr.is_symbol()) {
    const auto found = symbols_.find(expr.symbol());
    HD_CHECK(found != symbols_.end(), expr.symbol().to_string() + " is not bound");
    return found->second;
  }
  const std::vector<SymExpr> operands = expr.operands();
  Values v;
  unsigned lanes = 0;
  for (const SymExpr& operand : operands) {
    v.push_back(index_value(operand));
    lanes = std::max(lanes, lanes_of(v.back()));
  }
  const auto wide = [&](std::size_t k) { return widened(v[k], lanes); };
  switch (expr.kind()) {
    case SymExpr::Kind::Sum:
    case SymExpr::Kind::Product: {
      // Uniform operands are joined first, so that one broadcast serves them all.
      std::stable_sort(v.begin(), v.end(),
                       [](Value* a, Value* b) { return lanes_of(a) < lanes_of(b); });
      Value* result = v[0];
      for (std::size_t k = 1; k < v.size(); ++k) {
        Value* left = widened(result, lanes_of(v[k]));
        result = expr.kind() == SymExpr::Kind::Sum ? b_.CreateNSWAdd(left, v[k])
                                                   : b_.CreateNSWMul(left, v[k]);
      }
      return result;
    }
    case SymExpr::Kind::FloorDiv:
    case SymExpr::Kind::Mod: {
      const bool simple = provably_nonnegative(operands[0], nest_.facts) &&
                          provably_nonnegative(operands[1], nest_.facts);
      Value* quotient = scalars_.index_floordiv(wide(0), wide(1), simple);
      if (expr.kind() == SymExpr::Kind::FloorDiv) return quotient;
      return b_.CreateSub(wide(0), b_.CreateMul(quotient, wide(1)));
    }
    case SymExpr::Kind::Min:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wide(0), wide(1));
    case SymExpr::Kind::Max:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, wide(0), wide(1));
    default:
      HD_CHECK(false, "an index expression of unknown kind: " + expr.to_string());
      return nullptr;
  }
}

Value* NestEmitter::scalar_index(const SymExpr& expr) {
  Value* v = index_value(expr);
  HD_CHECK(lanes_of(v) == 0, expr.to_string() + " differs between lanes");
  return v;
}

NestEmitter::Access NestEmitter::classify(const SymExpr& index) {
  if (!varies(index)) return {Access::Kind::Uniform, index_value(index)};
  if (const auto linear = index.linear_in(vector_axis_); linear && !varies(linear->rest)) {
    const bool forward = linear->coefficient.is_constant(1);
    if (forward || linear->coefficient.is_constant(-1)) {
      Value* rest = index_value(linear->rest);
      if (forward) return {Access::Kind::Contiguous, b_.CreateNSWAdd(rest, vector_base_)};
      return {Access::Kind::Reversed, b_.CreateNSWSub(rest, vector_base_)};
    }
  }
  return {Access::Kind::General, index_value(index)};
}

Value* NestEmitter::element_address(NestBufferId buffer, Value* index) {
  llvm::Type* element = scalars_.storage_type(nest_.buffers[buffer].dtype, 0);
  return b_.CreateGEP(element, buffers_[buffer], index);
}

Value* NestEmitter::lane_mask(ScalarId mask) {
  if (mask == kNoScalar) return active_;
  Value* wanted = widened(value(mask), lanes_);
  return active_ == nullptr ? wanted : b_.CreateAnd(active_, wanted);
}

void NestEmitter::operator()(const ConstStmt& s) {
  dtypes_[s.result] = s.dtype;
  define(s.result, scalars_.constant(s.dtype, s.number, s.integer));
}

void NestEmitter::operator()(const ApplyStmt& s) {
  dtypes_[s.result] = s.dtype;
  unsigned lanes = 0;
  for (ScalarId id : s.operands) lanes = std::max(lanes, lanes_of(value(id)));
  Values operands;
  for (ScalarId id : s.operands) operands.push_back(widened(value(id), lanes));
  const DType operand = dtypes_.at(s.operands[s.op == ScalarOp::Select ? 1 : 0]);
  define(s.result, scalars_.apply(s.op, operand, operands));
}

void NestEmitter::operator()(const ConvertStmt& s) {
  dtypes_[s.result] = s.dtype;
  define(s.result, scalars_.convert(value(s.operand), dtypes_.at(s.operand), s.dtype));
}

void NestEmitter::operator()(const IndexStmt& s) {
  dtypes_[s.result] = DType::I64;
  define(s.result, index_value(s.index));
}

void NestEmitter::operator()(const BindStmt& s) {
  Value* v = value(s.operand);
  Value* low = index_value(s.low);
  Value* high = index_value(s.high);
  const unsigned lanes = std::max({lanes_of(v), lanes_of(low), lanes_of(high)});
  Value* wide_low = widened(low, lanes);
  Value* wide_high = widened(high, lanes);
  v = widened(v, lanes);
  if (s.check != 0) {
    Value* bad = b_.CreateOr(b_.CreateICmpSLT(v, wide_low), b_.CreateICmpSGT(v, wide_high));
    if (lanes == 0 && lanes_ != 0 && active_ != nullptr && s.mask == kNoScalar) {
      // Some lane of the tail is always within the extent.
    } else if (lanes_ != 0) {
      bad = widened(bad, lanes_);
      if (Value* mask = lane_mask(s.mask)) bad = b_.CreateAnd(bad, mask);
    } else if (s.mask != kNoScalar) {
      bad = b_.CreateAnd(bad, value(s.mask));
    }
    if (lanes_of(bad) != 0) bad = b_.CreateOrReduce(bad);
    Value* empty = b_.CreateICmpSGT(low, high);
    if (lanes_of(empty) != 0) empty = b_.CreateOrReduce(empty);
    report(bad, s.check, empty);
  }
  Value* upper = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v, wide_high);
  symbols_[s.symbol] = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, upper, wide_low);
}

/// The first failed check stays in the status word. Without any valid index there is nothing to go on
/// with, and the kernel ends.
void NestEmitter::report(Value* bad, std::int32_t code, Value* empty) {
  when(
      bad,
      [&] {
        b_.CreateAtomicCmpXchg(status_, b_.getInt32(0),
                               b_.getInt32(static_cast<std::uint32_t>(code)), llvm::MaybeAlign(4),
                               llvm::AtomicOrdering::Monotonic, llvm::AtomicOrdering::Monotonic);
        when(
            empty,
            [&] {
              b_.CreateRetVoid();
              b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "unreached", function_));
            },
            true);
      },
      true);
}

Value* NestEmitter::load_scalar(const NestBuffer& buffer, Value* address, Value* mask) {
  if (mask != nullptr) address = b_.CreateSelect(mask, address, zeros_);
  const auto alignment = llvm::Align(size_of(buffer.dtype));
  llvm::Type* type = scalars_.storage_type(buffer.dtype, 0);
  return scalars_.from_storage(buffer.dtype, b_.CreateAlignedLoad(type, address, alignment));
}

void NestEmitter::operator()(const LoadStmt& s) {
  dtypes_[s.result] = s.dtype;
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  const Access access = classify(s.index);
  if (access.kind != Access::Kind::Uniform) {
    define(s.result, load_lanes(s, access));
    return;
  }
  Value* mask = s.mask == kNoScalar ? nullptr : value(s.mask);
  if (mask == nullptr || lanes_of(mask) == 0) {
    define(s.result, load_scalar(buffer, element_address(s.buffer, access.index), mask));
    return;
  }
  // One element for all lanes that want it.
  Value* wanted = lane_mask(s.mask);
  Value* element =
      load_scalar(buffer, element_address(s.buffer, access.index), b_.CreateOrReduce(wanted));
  Value* wide = widened(element, lanes_);
  define(s.result, b_.CreateSelect(wanted, wide, llvm::Constant::getNullValue(wide->getType())));
}

Value* NestEmitter::load_lanes(const LoadStmt& s, const Access& access) {
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  Value* stored =
      read_lanes(buffer, access, element_address(s.buffer, access.index), lane_mask(s.mask));
  return scalars_.from_storage(buffer.dtype, stored);
}

Value* NestEmitter::read_lanes(const NestBuffer& buffer, const Access& access, Value* address,
                               Value* mask) {
  llvm::Type* type = scalars_.storage_type(buffer.dtype, lanes_);
  const auto alignment = llvm::Align(size_of(buffer.dtype));
  Value* zero = llvm::Constant::getNullValue(type);
  if (access.kind == Access::Kind::General)
    return b_.CreateMaskedGather(type, address, alignment, mask, zero);
  const bool reversed = access.kind == Access::Kind::Reversed;
  if (reversed) {
    llvm::Type* element = type->getScalarType();
    address = b_.CreateGEP(element, address, b_.getInt64(1 - static_cast<std::uint64_t>(lanes_)));
    if (mask != nullptr) mask = b_.CreateShuffleVector(mask, reversed_lanes(lanes_));
  }
  Value* stored = mask == nullptr
                      ? static_cast<Value*>(b_.CreateAlignedLoad(type, address, alignment))
                      : b_.CreateMaskedLoad(type, address, alignment, mask, zero);
  return reversed ? b_.CreateShuffleVector(stored, reversed_lanes(lanes_)) : stored;
}

void NestEmitter::operator()(const StoreStmt& s) {
  if (lanes_ == 0) return store_scalar(s);
  store_lanes(s, classify(s.index));
}

void NestEmitter::store_scalar(const StoreStmt& s) {
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  Value* address = element_address(s.buffer, index_value(s.index));
  const auto write = [&] {
    Value* result = value(s.operand);
    const auto alignment = llvm::Align(size_of(buffer.dtype));
    if (s.combine)
      result = scalars_.apply(scalar_of(*s.combine), buffer.dtype,
                              Values{load_scalar(buffer, address, nullptr), result});
    b_.CreateAlignedStore(scalars_.to_storage(buffer.dtype, result), address, alignment);
  };
  if (s.mask == kNoScalar) return write();
  when(value(s.mask), write, false);
}

void NestEmitter::store_lanes(const StoreStmt& s, const Access& uniform) {
  Access access = uniform;
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  if (access.kind == Access::Kind::Uniform)
    access = {Access::Kind::General, widened(access.index, lanes_)};
  Value* address = element_address(s.buffer, access.index);
  Value* mask = lane_mask(s.mask);
  Value* result = widened(value(s.operand), lanes_);
  if (s.combine) {
    Value* old = scalars_.from_storage(buffer.dtype, read_lanes(buffer, access, address, mask));
    result = scalars_.apply(scalar_of(*s.combine), buffer.dtype, Values{old, result});
  }
  write_lanes(buffer, access, address, scalars_.to_storage(buffer.dtype, result), mask);
}

void NestEmitter::write_lanes(const NestBuffer& buffer, const Access& access, Value* address,
                              Value* stored, Value* mask) {
  const auto alignment = llvm::Align(size_of(buffer.dtype));
  if (access.kind == Access::Kind::General) {
    b_.CreateMaskedScatter(stored, address, alignment, mask);
    return;
  }
  if (access.kind == Access::Kind::Reversed) {
    address = b_.CreateGEP(stored->getType()->getScalarType(), address,
                           b_.getInt64(1 - static_cast<std::uint64_t>(lanes_)));
    stored = b_.CreateShuffleVector(stored, reversed_lanes(lanes_));
    if (mask != nullptr) mask = b_.CreateShuffleVector(mask, reversed_lanes(lanes_));
  }
  if (mask == nullptr) {
    b_.CreateAlignedStore(stored, address, alignment);
  } else {
    b_.CreateMaskedStore(stored, address, alignment, mask);
  }
}

void NestEmitter::operator()(const IfStmt& s) {
  when(value(s.condition), [&] { block(*s.body); }, false);
}

}  // namespace heddle::jit::cpu
