// Index expressions and memory.
#include <algorithm>
#include <cstdlib>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "base/check.h"
#include "base/symreal.h"
#include "jit/cpu/llvm/loop_shape.h"
#include "jit/cpu/llvm/nest_emitter.h"
#include "jit/cpu/llvm/size_reals.h"

namespace heddle::jit::cpu {
namespace {

using ir::ScalarOp;
using llvm::Value;

/// Elements from one lane to the next up to which distances of all lanes fit into 32 bits, in which gathers take them.
constexpr std::int64_t kMostStep = std::int64_t{1} << 20;

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

bool NestEmitter::varies(const SymExpr& expr) const {
  std::vector<Symbol> symbols;
  expr.collect_symbols(symbols);
  for (Symbol s : symbols) {
    const auto found = symbols_.find(s);
    if (found != symbols_.end() && lanes_of(found->second.value) != 0) return true;
  }
  return false;
}

namespace {

template <typename T>
const T* found_in(const std::vector<std::pair<SymExpr, T>>& entries, const SymExpr& expr) {
  const auto found = std::ranges::find(entries, expr, &std::pair<SymExpr, T>::first);
  return found == entries.end() ? nullptr : &found->second;
}

}  // namespace

/// What was computed of it before a loop; null: nothing.
const NestEmitter::Bound* NestEmitter::fixed_index(const SymExpr& expr) const {
  return found_in(fixed_indices_, expr);
}
const NestEmitter::Bound* NestEmitter::fixed_inverse(const SymExpr& divisor) const {
  return found_in(fixed_inverses_, divisor);
}

void NestEmitter::set_symbol(Symbol symbol, Value* v) { symbols_[symbol] = {v, depth_}; }

/// Loops around the place where all that the expression is made of is there.
unsigned NestEmitter::depth_of(const SymExpr& expr) const {
  if (expr.is_constant()) return 0;
  if (expr.is_symbol()) {
    const auto found = symbols_.find(expr.symbol());
    HD_CHECK(found != symbols_.end(), expr.symbol().to_string() + " is not bound");
    return found->second.depth;
  }
  if (const Bound* fixed = fixed_index(expr)) return fixed->depth;
  unsigned depth = 0;
  for (const SymExpr& operand : expr.operands()) depth = std::max(depth, depth_of(operand));
  return depth;
}

/// What is the same in all iterations of a loop is computed once before it.
Value* NestEmitter::index_value(const SymExpr& expr) {
  if (expr.is_constant()) return b_.getInt64(static_cast<std::uint64_t>(expr.constant()));
  if (expr.is_symbol()) {
    const auto found = symbols_.find(expr.symbol());
    HD_CHECK(found != symbols_.end(), expr.symbol().to_string() + " is not bound");
    return found->second.value;
  }
  if (const Bound* fixed = fixed_index(expr)) return fixed->value;
  const unsigned depth = depth_of(expr);
  if (depth >= depth_) return index_here(expr);
  if (Value* const* known = found_in(levels_[depth].known, expr)) return *known;
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  b_.SetInsertPoint(levels_[depth].before);
  const unsigned outside = std::exchange(depth_, depth);
  Value* value = index_here(expr);
  depth_ = outside;
  levels_[depth].known.emplace_back(expr, value);
  return value;
}

/// The same where the builder is, of operands that were computed before.
Value* NestEmitter::index_here(const SymExpr& expr) {
  std::vector<SymExpr> operands = expr.operands();
  const bool sum = expr.kind() == SymExpr::Kind::Sum;
  if (sum || expr.kind() == SymExpr::Kind::Product) {
    // What there is before the loop is one operand, and of a sum what is added last is a number, as addresses have.
    SymExpr before = sum ? 0 : 1;
    std::int64_t number = 0;
    std::erase_if(operands, [&](const SymExpr& operand) {
      if (sum && operand.is_constant()) {
        number = operand.constant();
        return true;
      }
      if (depth_of(operand) >= depth_) return false;
      before = sum ? before + operand : before * operand;
      return true;
    });
    Values v;
    if (!before.is_constant(sum ? 0 : 1)) v.push_back(index_value(before));
    for (const SymExpr& operand : operands) v.push_back(index_value(operand));
    // Uniform operands are joined first, so that one broadcast serves them all.
    std::stable_sort(v.begin(), v.end(),
                     [](Value* a, Value* b) { return lanes_of(a) < lanes_of(b); });
    Value* result = v[0];
    for (std::size_t k = 1; k < v.size(); ++k) {
      Value* left = widened(result, lanes_of(v[k]));
      result = sum ? b_.CreateNSWAdd(left, v[k]) : b_.CreateNSWMul(left, v[k]);
    }
    if (number == 0) return result;
    Value* last = widened(b_.getInt64(static_cast<std::uint64_t>(number)), lanes_of(result));
    return b_.CreateNSWAdd(result, last);
  }
  Values v;
  unsigned lanes = 0;
  for (const SymExpr& operand : operands) {
    v.push_back(index_value(operand));
    lanes = std::max(lanes, lanes_of(v.back()));
  }
  const auto wide = [&](std::size_t k) { return widened(v[k], lanes); };
  switch (expr.kind()) {
    case SymExpr::Kind::FloorDiv:
    case SymExpr::Kind::Mod: {
      const bool simple = provably_nonnegative(operands[0], nest_.facts) &&
                          provably_nonnegative(operands[1], nest_.facts);
      const Bound* inverse = simple ? fixed_inverse(operands[1]) : nullptr;
      Value* quotient = inverse != nullptr && inverse->depth <= depth_
                            ? scalars_.index_times_inverse(wide(0), inverse->value)
                            : scalars_.index_floordiv(wide(0), wide(1), simple);
      if (expr.kind() == SymExpr::Kind::FloorDiv) return quotient;
      return b_.CreateSub(wide(0), b_.CreateMul(quotient, wide(1)));
    }
    case SymExpr::Kind::Min:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wide(0), wide(1));
    case SymExpr::Kind::Max:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, wide(0), wide(1));
    default:
      HD_CHECK(base::is_real(expr.kind()) && lanes == 0, expr.to_string() + " is no index");
      return apply_real(b_, expr.kind(), v[0], v[1]);
  }
}

Value* NestEmitter::scalar_index(const SymExpr& expr) {
  Value* v = index_value(expr);
  HD_CHECK(lanes_of(v) == 0, expr.to_string() + " differs between lanes");
  return v;
}

/// The axis's value in lane 0 plus `rest`, which lanes share; a number in it is added last, as addresses have it.
Value* NestEmitter::from_vector_base(const SymExpr& rest) {
  std::int64_t number = rest.as_constant().value_or(0);
  if (rest.kind() == SymExpr::Kind::Sum)
    for (const SymExpr& term : rest.operands()) number += term.as_constant().value_or(0);
  const SymExpr moved = rest - number;
  Value* index = vector_base_;
  if (!moved.is_constant(0)) index = b_.CreateNSWAdd(index_value(moved), index);
  if (number == 0) return index;
  return b_.CreateNSWAdd(index, b_.getInt64(static_cast<std::uint64_t>(number)));
}

NestEmitter::Access NestEmitter::classify(const SymExpr& index) {
  if (!varies(index)) return {Access::Kind::Uniform, index_value(index)};
  if (const auto linear = index.linear_in(vector_axis_); linear && !varies(linear->rest)) {
    const bool forward = linear->coefficient.is_constant(1);
    if (forward || linear->coefficient.is_constant(-1)) {
      if (forward) return {Access::Kind::Contiguous, from_vector_base(linear->rest)};
      Value* rest = index_value(linear->rest);
      return {Access::Kind::Reversed, b_.CreateNSWSub(rest, vector_base_)};
    }
    const auto step = linear->coefficient.as_constant();
    if (step && std::abs(*step) <= kMostStep) {
      Value* first = b_.CreateNSWAdd(
          index_value(linear->rest),
          b_.CreateNSWMul(vector_base_, b_.getInt64(static_cast<std::uint64_t>(*step))));
      return {.kind = Access::Kind::Strided, .index = first, .step = *step};
    }
  }
  if (const auto bounded = classify_bounded(index)) return *bounded;
  if (const auto repeated = classify_repeated(index)) return *repeated;
  if (index.kind() == SymExpr::Kind::Sum) {
    SymExpr shared = 0;
    for (const SymExpr& term : index.operands())
      if (!varies(term)) shared += term;
    if (!shared.is_constant(0))
      return {.kind = Access::Kind::General,
              .index = index_value(index - shared),
              .base = index_value(shared)};
  }
  return {Access::Kind::General, index_value(index)};
}

/// min(bound, axis + rest) + more, as broadcasting a dimension that may be 1 gives it.
std::optional<NestEmitter::Access> NestEmitter::classify_bounded(const SymExpr& index) {
  SymExpr outside = 0;
  std::optional<SymExpr> minimum;
  const auto terms =
      index.kind() == SymExpr::Kind::Sum ? index.operands() : std::vector<SymExpr>{index};
  for (const SymExpr& term : terms) {
    if (!varies(term)) {
      outside += term;
    } else if (term.kind() == SymExpr::Kind::Min && !minimum) {
      minimum = term;
    } else {
      return std::nullopt;
    }
  }
  if (!minimum) return std::nullopt;
  std::vector<SymExpr> sides = minimum->operands();
  if (varies(sides[0])) std::swap(sides[0], sides[1]);
  if (varies(sides[0])) return std::nullopt;
  const auto linear = sides[1].linear_in(vector_axis_);
  if (!linear || !linear->coefficient.is_constant(1) || varies(linear->rest)) return std::nullopt;
  Access access{Access::Kind::Bounded,
                b_.CreateNSWAdd(index_value(linear->rest + outside), vector_base_)};
  access.bound = index_value(sides[0] + outside);
  return access;
}

/// unit * floor(axis / count) + more: vectors begin at multiples of their lanes, so that each begins with the first lane of an
/// element. Elements that are no neighbours are loaded one by one, where gathers take longer.
std::optional<NestEmitter::Access> NestEmitter::classify_repeated(const SymExpr& index) {
  const auto repeated =
      repeated_index(index, vector_axis_, [&](const SymExpr& term) { return varies(term); });
  if (!repeated || lanes_ % repeated->count != 0) return std::nullopt;
  const bool gathers_well = target_.vector_bytes == 64;
  if (repeated->unit != 1 && gathers_well) return std::nullopt;
  Value* first =
      b_.CreateUDiv(vector_base_, b_.getInt64(static_cast<std::uint64_t>(repeated->count)));
  if (repeated->unit != 1)
    first = b_.CreateNSWMul(first, b_.getInt64(static_cast<std::uint64_t>(repeated->unit)));
  return Access{.kind = Access::Kind::Repeated,
                .index = b_.CreateNSWAdd(index_value(repeated->rest), first),
                .step = repeated->count,
                .unit = repeated->unit};
}

/// 0, 1, 2, … as i32.
Value* NestEmitter::lane_numbers() {
  llvm::SmallVector<llvm::Constant*, 128> numbers;
  for (unsigned k = 0; k < lanes_; ++k) numbers.push_back(b_.getInt32(k));
  return llvm::ConstantVector::get(numbers);
}

Value* NestEmitter::lane_offsets(std::int64_t step) {
  llvm::SmallVector<llvm::Constant*, 128> offsets;
  for (unsigned k = 0; k < lanes_; ++k)
    offsets.push_back(b_.getInt64(static_cast<std::uint64_t>(step * static_cast<std::int64_t>(k))));
  return llvm::ConstantVector::get(offsets);
}

/// to - first, kept within what lane numbers can be compared with, for every lane.
Value* NestEmitter::lane_distance(Value* first, Value* to) {
  Value* distance = b_.CreateNSWSub(to, first);
  distance = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, distance, b_.getInt64(lanes_));
  distance =
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, distance, b_.getInt64(~std::uint64_t{0}));
  return widened(b_.CreateTrunc(distance, b_.getInt32Ty()), lanes_);
}

Value* NestEmitter::element_address(NestBufferId buffer, Value* index) {
  llvm::Type* element = scalars_.storage_type(nest_.buffers[buffer].dtype, 0);
  return b_.CreateGEP(element, buffers_[buffer], index);
}

Value* NestEmitter::access_address(NestBufferId buffer, const Access& access) {
  llvm::Type* element = scalars_.storage_type(nest_.buffers[buffer].dtype, 0);
  if (access.base != nullptr)
    return b_.CreateGEP(element, element_address(buffer, access.base), access.index);
  Value* index = access.index;
  Value* number = nullptr;
  // A number that is added goes into the instruction, and what it is added to is shared by neighbours.
  if (auto* sum = llvm::dyn_cast<llvm::AddOperator>(index);
      sum != nullptr && llvm::isa<llvm::ConstantInt>(sum->getOperand(1))) {
    index = sum->getOperand(0);
    number = sum->getOperand(1);
  }
  Value* address = element_address(buffer, index);
  if (number != nullptr) address = b_.CreateGEP(element, address, number);
  if (access.kind != Access::Kind::Strided) return address;
  return b_.CreateGEP(element, address, lane_offsets(access.step));
}

Value* NestEmitter::lane_mask(ScalarId mask) {
  if (mask == kNoScalar) return active_;
  Value* wanted = widened(value(mask), lanes_);
  return active_ == nullptr ? wanted : b_.CreateAnd(active_, wanted);
}

Value* NestEmitter::lanes_below(Value* limit, std::int64_t first, std::int64_t step,
                                unsigned count) {
  llvm::SmallVector<llvm::Constant*, 128> numbers;
  for (std::int64_t k = 0; k < std::int64_t{count}; ++k)
    numbers.push_back(b_.getInt32(static_cast<std::uint32_t>(first + step * k)));
  return b_.CreateICmpSLT(llvm::ConstantVector::get(numbers), widened(limit, count));
}

Value* NestEmitter::reversed_mask(Value* mask) {
  if (mask == active_) return lanes_below(left_, std::int64_t{lanes_} - 1, -1, lanes_);
  return b_.CreateShuffleVector(mask, reversed_lanes(lanes_));
}

Value* NestEmitter::load_scalar(const NestBuffer& buffer, Value* address, Value* mask) {
  if (mask != nullptr) address = b_.CreateSelect(mask, address, zeros_);
  llvm::Type* type = scalars_.storage_type(buffer.dtype, 0);
  return scalars_.from_storage(buffer.dtype,
                               b_.CreateAlignedLoad(type, address, llvm::Align(kReadAlignment)));
}

void NestEmitter::operator()(const LoadStmt& s) {
  dtypes_[s.result] = s.dtype;
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  const Access access = classify(s.index);
  if (access.kind != Access::Kind::Uniform) {
    define(s.result, load_lanes(s, access));
    return;
  }
  if (const auto next = row_fetches_.find(&s); next != row_fetches_.end())
    fetch(element_address(s.buffer, b_.CreateNSWAdd(access.index, scalar_index(next->second))), 1);
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
  if (access.kind == Access::Kind::Bounded) return load_bounded(s, access);
  const auto row = row_fetches_.find(&s);
  if (row != row_fetches_.end() && access.kind == Access::Kind::Contiguous && active_ == nullptr)
    fetch_lanes(s.buffer, b_.CreateNSWAdd(access.index, scalar_index(row->second)));
  if (access.kind == Access::Kind::Strided && s.mask == kNoScalar && access.step >= 2 &&
      access.step <= kMostColumns)
    return scalars_.from_storage(buffer.dtype, pick_lanes(s, access));
  if (access.kind == Access::Kind::Repeated) {
    Value* wanted = s.mask == kNoScalar ? nullptr : value(s.mask);
    if (wanted == nullptr || lanes_of(wanted) == 0)
      return scalars_.from_storage(buffer.dtype, repeat_lanes(s.buffer, access, wanted));
    return load_lanes(s, {Access::Kind::General, index_value(s.index)});
  }
  if (access.kind == Access::Kind::General) {
    if (Value* near = load_near(s)) return near;
    if (Value* byte = load_of_table(s)) return byte;
  }
  Value* address = access_address(s.buffer, access);
  // Where no lane is wanted the element may lie anywhere; a load of no lanes from memory that is not there takes a microsecond.
  const bool side_by_side =
      access.kind == Access::Kind::Contiguous || access.kind == Access::Kind::Reversed;
  if (side_by_side && s.mask != kNoScalar && lanes_of(value(s.mask)) == 0)
    address = b_.CreateSelect(value(s.mask), address, zeros_);
  Value* stored = read_lanes(buffer, access, address, lane_mask(s.mask));
  return scalars_.from_storage(buffer.dtype, stored);
}

Value* NestEmitter::load_of_table(const LoadStmt& s) {
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  if (!s.index.is_symbol() || s.mask != kNoScalar || !is_byte(buffer.dtype) || buffer.written ||
      !has_byte_tables(target_))
    return nullptr;
  const auto byte = byte_symbols_.find(s.index.symbol());
  if (byte == byte_symbols_.end() || lanes_of(byte->second) == 0) return nullptr;
  const auto read = [&] { return read_byte_table(b_, buffers_[s.buffer]); };
  if (levels_.empty()) return byte_of_table(b_, read(), byte->second);
  Level& level = levels_.back();
  auto table = level.tables.find(s.buffer);
  if (table == level.tables.end()) {
    const llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(level.before);
    table = level.tables.emplace(s.buffer, read()).first;
  }
  return byte_of_table(b_, table->second, byte->second);
}

void NestEmitter::fetch_lanes(NestBufferId buffer, Value* index) {
  constexpr unsigned kLineBytes = 64;
  const auto line = kLineBytes / static_cast<unsigned>(size_of(nest_.buffers[buffer].dtype));
  for (unsigned lane = 0; lane < lanes_; lane += line)
    fetch(element_address(buffer, b_.CreateNSWAdd(index, b_.getInt64(lane))), 1);
}

void NestEmitter::fetch(Value* address, unsigned level) {
  constexpr unsigned kRead = 0;
  constexpr unsigned kData = 1;
  // LLVM counts from the memory's end.
  const unsigned locality = 4 - level;
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()},
                     {address, b_.getInt32(kRead), b_.getInt32(locality), b_.getInt32(kData)});
}

/// Lanes up to the bound lie side by side; those beyond share the element at the bound, which is read only
/// if there are any.
Value* NestEmitter::load_bounded(const LoadStmt& s, const Access& access) {
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  Value* within = b_.CreateICmpSLE(lane_numbers(), lane_distance(access.index, access.bound));
  Value* wanted = lane_mask(s.mask);
  Value* beyond = b_.CreateNot(within);
  if (wanted != nullptr) beyond = b_.CreateAnd(wanted, beyond);
  Value* edge =
      load_scalar(buffer, element_address(s.buffer, access.bound), b_.CreateOrReduce(beyond));
  Value* mask = wanted == nullptr ? within : b_.CreateAnd(wanted, within);
  Value* stored = read_lanes(buffer, {Access::Kind::Contiguous, access.index},
                             element_address(s.buffer, access.index), mask);
  Value* inside = scalars_.from_storage(buffer.dtype, stored);
  return b_.CreateSelect(beyond, widened(edge, lanes_), inside);
}

Value* NestEmitter::read_lanes(const NestBuffer& buffer, const Access& access, Value* address,
                               Value* mask) {
  llvm::Type* type = scalars_.storage_type(buffer.dtype, lanes_);
  Value* zero = llvm::Constant::getNullValue(type);
  if (access.kind == Access::Kind::General || access.kind == Access::Kind::Strided)
    return b_.CreateMaskedGather(type, address, llvm::Align(kReadAlignment), mask, zero);
  const bool reversed = access.kind == Access::Kind::Reversed;
  const bool has_no_masks = size_of(buffer.dtype) < 4 || target_.vector_bytes < kBytesWithFma;
  if (!reversed && has_no_masks && goes_by_pieces(mask))
    return read_rest(type, address, llvm::Align(kReadAlignment));
  if (reversed) {
    llvm::Type* element = type->getScalarType();
    address = b_.CreateGEP(element, address, b_.getInt64(1 - static_cast<std::uint64_t>(lanes_)));
    if (mask != nullptr) mask = reversed_mask(mask);
  }
  Value* stored =
      mask == nullptr
          ? static_cast<Value*>(b_.CreateAlignedLoad(type, address, llvm::Align(kReadAlignment)))
          : b_.CreateMaskedLoad(type, address, llvm::Align(kReadAlignment), mask, zero);
  return reversed ? b_.CreateShuffleVector(stored, reversed_lanes(lanes_)) : stored;
}

void NestEmitter::operator()(const StoreStmt& s) {
  if (lanes_ == 0) return store_scalar(s);
  if (store_column(s)) return;
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
  if (access.kind == Access::Kind::Uniform || access.kind == Access::Kind::Bounded ||
      access.kind == Access::Kind::Repeated)
    access = {Access::Kind::General, widened(index_value(s.index), lanes_)};
  Value* address = access_address(s.buffer, access);
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
  if (access.kind == Access::Kind::General || access.kind == Access::Kind::Strided) {
    b_.CreateMaskedScatter(stored, address, alignment, mask);
    return;
  }
  if (access.kind == Access::Kind::Reversed) {
    address = b_.CreateGEP(stored->getType()->getScalarType(), address,
                           b_.getInt64(1 - static_cast<std::uint64_t>(lanes_)));
    stored = b_.CreateShuffleVector(stored, reversed_lanes(lanes_));
    if (mask != nullptr) mask = reversed_mask(mask);
  }
  if (mask == nullptr) {
    b_.CreateAlignedStore(stored, address, alignment);
  } else if (access.kind == Access::Kind::Contiguous && goes_by_pieces(mask)) {
    write_rest(stored, address, alignment);
  } else {
    b_.CreateMaskedStore(stored, address, alignment, mask);
  }
}

}  // namespace heddle::jit::cpu
