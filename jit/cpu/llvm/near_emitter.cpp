// Lanes that read near each other, as those of resampled rows do, whose places were computed once for all rows:
//
//   vector i { store table[i] = … }
//   serial r { vector i { t = bind table[i];  %0 = load x[100*r + t] } }
//
// Where all lanes read within two or four vectors behind the first lane's element, these are loaded and shuffled, which the
// code finds out as it runs; a gather reads lane by lane.
#include <array>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// Elements of 4 bytes in a vector of AVX-512.
constexpr unsigned kLanes = 16;

/// Element which[lane] of the vectors `low` and `high`, one behind the other.
Value* shuffled(llvm::IRBuilderBase& b, Value* low, Value* which, Value* high) {
  if (low->getType()->isFPOrFPVectorTy())
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {}, {low, which, high});
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_d_512, {}, {low, which, high});
}

}  // namespace

/// The symbol that the lanes of an index differ by, if that was bound to a place in a table of the loop.
std::optional<Symbol> NestEmitter::tabulated_place(const SymExpr& index) const {
  std::optional<Symbol> found;
  const auto terms =
      index.kind() == SymExpr::Kind::Sum ? index.operands() : std::vector<SymExpr>{index};
  for (const SymExpr& term : terms) {
    if (!varies(term)) continue;
    if (found || !term.is_symbol() || tabulated_places_.count(term.symbol()) == 0) return {};
    found = term.symbol();
  }
  return found;
}

/// What the lanes of a load read where tables say where; null where the load is none of these.
Value* NestEmitter::load_near(const LoadStmt& s) {
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  llvm::Type* element = scalars_.storage_type(buffer.dtype, 0);
  const bool is_word = element->isFloatTy() || element->isIntegerTy(32);
  if (s.mask != kNoScalar || !is_word || target_.vector_bytes != 4 * std::int64_t{kLanes} ||
      !has_feature(target_, "avx512f") || lanes_ % kLanes != 0)
    return nullptr;
  const auto place = tabulated_place(s.index);
  if (!place) return nullptr;
  const NearLanes near{
      .buffer = s.buffer,
      .first = scalar_index(s.index - SymExpr(*place)),
      .count = scalar_index(buffer.count),
  };
  Value* places = symbols_.at(*place);
  Values parts;
  for (unsigned begin = 0; begin < lanes_; begin += kLanes) {
    const auto part = [&](Value* v) {
      return lanes_ == kLanes ? v : b_.CreateShuffleVector(v, lane_range(begin, kLanes));
    };
    parts.push_back(near_part(near, part(places), active_ == nullptr ? nullptr : part(active_)));
  }
  return scalars_.from_storage(buffer.dtype, concatenate(b_, std::move(parts)));
}

/// The lanes of one vector; `active`: those that are wanted, if not all.
Value* NestEmitter::near_part(const NearLanes& near, Value* places, Value* active) {
  Value* first = b_.CreateExtractElement(places, std::uint64_t{0});
  Value* distances = b_.CreateSub(places, widened(first, kLanes));
  Value* which = b_.CreateTrunc(distances, llvm::FixedVectorType::get(b_.getInt32Ty(), kLanes));
  Value* begin = b_.CreateNSWAdd(near.first, first);
  llvm::Type* type = scalars_.storage_type(nest_.buffers[near.buffer].dtype, kLanes);
  const auto vector = [&](unsigned k) {
    Value* address = element_address(near.buffer, b_.CreateNSWAdd(begin, b_.getInt64(k * kLanes)));
    return b_.CreateAlignedLoad(type, address, llvm::Align(kReadAlignment));
  };
  const auto within = [&](unsigned vectors) {
    Value* reach = widened(b_.getInt64(vectors * kLanes), kLanes);
    Value* near_enough = b_.CreateICmpULT(distances, reach);
    if (active != nullptr) near_enough = b_.CreateOr(near_enough, b_.CreateNot(active));
    Value* end = b_.CreateNSWAdd(begin, b_.getInt64(vectors * kLanes));
    return b_.CreateAnd(b_.CreateAndReduce(near_enough), b_.CreateICmpSLE(end, near.count));
  };
  const auto gathered = [&]() -> Value* {
    Value* base = element_address(near.buffer, near.first);
    Value* addresses = b_.CreateGEP(type->getScalarType(), base, places);
    return b_.CreateMaskedGather(type, addresses, llvm::Align(kReadAlignment), active,
                                 llvm::Constant::getNullValue(type));
  };
  const auto of_four = [&]() -> Value* {
    Value* low = shuffled(b_, vector(0), which, vector(1));
    Value* high = shuffled(b_, vector(2), which, vector(3));
    Value* is_high = b_.CreateICmpUGE(which, widened(b_.getInt32(2 * kLanes), kLanes));
    return b_.CreateSelect(is_high, high, low);
  };
  return either(
      within(2), [&] { return shuffled(b_, vector(0), which, vector(1)); },
      [&] { return either(within(4), of_four, gathered); });
}

/// What `then` or `otherwise` gives, of which one runs.
Value* NestEmitter::either(Value* condition, const std::function<Value*()>& then,
                           const std::function<Value*()>& otherwise) {
  const std::array<const std::function<Value*()>*, 2> sides{&then, &otherwise};
  std::array<llvm::BasicBlock*, 2> blocks{};
  for (llvm::BasicBlock*& block : blocks)
    block = llvm::BasicBlock::Create(b_.getContext(), "side", function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "joined", function_);
  b_.CreateCondBr(condition, blocks[0], blocks[1]);
  std::array<Value*, 2> values{};
  for (std::size_t k = 0; k < 2; ++k) {
    b_.SetInsertPoint(blocks[k]);
    values[k] = (*sides[k])();
    blocks[k] = b_.GetInsertBlock();
    b_.CreateBr(after);
  }
  b_.SetInsertPoint(after);
  llvm::PHINode* joined = b_.CreatePHI(values[0]->getType(), 2);
  for (std::size_t k = 0; k < 2; ++k) joined->addIncoming(values[k], blocks[k]);
  return joined;
}

}  // namespace heddle::jit::cpu
