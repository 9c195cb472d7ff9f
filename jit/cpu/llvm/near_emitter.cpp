// Lanes that read near each other, as those of resampled rows do, whose places were computed once for all rows:
//
//   vector i { store table[i] = … }
//   serial r { vector i { t = bind table[i];  %0 = load x[100*r + t] } }
//
// Before each such loop over the lanes the code looks how far from each other the lanes of a vector read. Where that is within
// two or four vectors, a loop runs that loads these and shuffles them; else one that gathers, which takes lane by lane.
#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

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

/// The vectors within which lanes lie `places` / `lanes` elements apart, and a few more; 0: too many.
unsigned vectors_for(const SymExpr& places, const SymExpr& lanes) {
  const auto from = places.as_constant();
  const auto to = lanes.as_constant();
  if (!from || !to || *to == 0) return 4;
  for (const unsigned vectors : {2U, 4U})
    if (8 * *from <= std::int64_t{8 * vectors - 1} * *to) return vectors;
  return 0;
}

}  // namespace

/// What a loop reads where tables say.
struct NestEmitter::NearLoop {
  struct Load {
    const LoadStmt* load;
    Symbol place;            ///< by which lanes differ
    SymExpr base;            ///< what it is added to
    Value* first = nullptr;  ///< that, computed before the loop
  };
  std::vector<std::pair<const BindStmt*, const LoadStmt*>> tables;  ///< each place, from where
  std::vector<Load> loads;
  unsigned vectors = 0;  ///< that the lanes of one vector may lie within
};

std::optional<NestEmitter::NearLoop> NestEmitter::near_loop(const ForStmt& s) const {
  if (target_.vector_bytes != 4 * std::int64_t{kLanes} || !has_feature(target_, "avx512f") ||
      !s.reductions.empty() || !s.carried.empty())
    return std::nullopt;
  NearLoop found;
  std::unordered_map<ScalarId, const LoadStmt*> tabulated;
  std::vector<Symbol> inside{s.axis};
  std::unordered_set<NestBufferId> written;
  for (const Stmt& statement : *s.body)
    if (const auto* store = std::get_if<StoreStmt>(&statement.node)) written.insert(store->buffer);
  for (const Stmt& statement : *s.body) {
    if (std::holds_alternative<ForStmt>(statement.node) ||
        std::holds_alternative<IfStmt>(statement.node))
      return std::nullopt;
    if (const auto* bind = std::get_if<BindStmt>(&statement.node); bind != nullptr) {
      inside.push_back(bind->symbol);
      const bool is_plain =
          bind->check == 0 && bind->mask == kNoScalar && bind->low.is_constant() &&
          std::ranges::none_of(inside, [&](Symbol symbol) { return bind->high.mentions(symbol); });
      if (!is_plain || tabulated.count(bind->operand) == 0) continue;
      const unsigned vectors = vectors_for(bind->high + 1, s.extent);
      if (vectors == 0) return std::nullopt;
      found.vectors = std::max(found.vectors, vectors);
      found.tables.emplace_back(bind, tabulated.at(bind->operand));
    }
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load == nullptr || load->mask != kNoScalar) continue;
    const auto linear = load->index.linear_in(s.axis);
    const auto is_uniform = [&](const SymExpr& expr) {
      return std::ranges::none_of(inside, [&](Symbol symbol) { return expr.mentions(symbol); });
    };
    if (load->buffer >= nest_.global_count() && load->dtype == DType::I64 &&
        written.count(load->buffer) == 0 && linear && linear->coefficient.is_constant(1) &&
        is_uniform(linear->rest))
      tabulated.emplace(load->result, load);
    const DType dtype = nest_.buffers[load->buffer].dtype;
    const bool is_word = dtype == DType::F32 || dtype == DType::I32;
    if (!is_word) continue;
    for (const auto& [bind, table] : found.tables) {
      const auto by_place = load->index.linear_in(bind->symbol);
      if (!by_place || !by_place->coefficient.is_constant(1)) continue;
      if (is_uniform(by_place->rest)) found.loads.push_back({load, bind->symbol, by_place->rest});
    }
  }
  if (found.loads.empty()) return std::nullopt;
  return found;
}

/// How far from the first one the lanes of any vector read, as the loop over them will; of all tables.
Value* NestEmitter::reach_of(const NearLoop& near, const ForStmt& s) {
  Value* extent = scalar_index(s.extent);
  auto* type = llvm::FixedVectorType::get(b_.getInt64Ty(), kLanes);
  const auto step = [&](Value* i, const Values& current) {
    vector_axis_ = s.axis;
    set_symbol(s.axis, set_lanes(i, kLanes, b_.CreateSub(extent, i)));
    Value* reach = current[0];
    for (const auto& [bind, table] : near.tables) {
      (*this)(*table);
      (*this)(*bind);
      Value* places = symbols_.at(bind->symbol).value;
      Value* first = widened(b_.CreateExtractElement(places, std::uint64_t{0}), kLanes);
      Value* distance =
          b_.CreateSelect(active_, b_.CreateSub(places, first), llvm::Constant::getNullValue(type));
      reach = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, reach, distance);
    }
    lanes_ = 0;
    active_ = nullptr;
    return Values{reach};
  };
  const Values all =
      loop(b_.getInt64(0), extent, kLanes, {llvm::Constant::getNullValue(type)}, step);
  return b_.CreateIntMaxReduce(all[0], /*IsSigned=*/false);
}

/// Emits the loop over lanes that read near each other; `otherwise` emits it for any others. False where it is none of these.
bool NestEmitter::emit_near(const ForStmt& s, const std::function<void(unsigned)>& otherwise,
                            unsigned width) {
  std::optional<NearLoop> found = near_loop(s);
  if (!found) return false;
  const std::int64_t count = std::int64_t{kLanes} * found->vectors;
  Value* near =
      b_.CreateICmpULT(reach_of(*found, s), b_.getInt64(static_cast<std::uint64_t>(count)));
  for (const NearLoop::Load& read : found->loads) {
    const SymExpr& elements = nest_.buffers[read.load->buffer].count;
    if (elements.is_constant() && elements.constant() >= count) continue;
    near = b_.CreateAnd(near, b_.CreateICmpSGE(scalar_index(elements),
                                               b_.getInt64(static_cast<std::uint64_t>(count))));
  }
  const auto shuffle = [&] {
    for (NearLoop::Load& read : found->loads) read.first = scalar_index(read.base);
    near_ = &*found;
    otherwise(kLanes);
    near_ = nullptr;
  };
  when(near, shuffle, false);
  when(b_.CreateNot(near), [&] { otherwise(width); }, true);
  return true;
}

/// What the lanes of a load read in such a loop; null where the load is none of these.
Value* NestEmitter::load_near(const LoadStmt& s) {
  if (near_ == nullptr) return nullptr;
  const auto found = std::ranges::find(near_->loads, &s, &NearLoop::Load::load);
  if (found == near_->loads.end()) return nullptr;
  const NearLoop::Load& near = *found;
  const NestBuffer& buffer = nest_.buffers[s.buffer];
  Value* places = symbols_.at(near.place).value;
  // The vectors end with the buffer at the latest.
  Value* last = scalar_index(buffer.count - std::int64_t{kLanes} * near_->vectors);
  Value* begin = b_.CreateNSWAdd(near.first, b_.CreateExtractElement(places, std::uint64_t{0}));
  begin = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, begin, last);
  Value* from = b_.CreateTrunc(b_.CreateNSWSub(begin, near.first), b_.getInt32Ty());
  from = widened(from, kLanes);
  Value* which = b_.CreateSub(b_.CreateTrunc(places, from->getType()), from);
  llvm::Type* type = scalars_.storage_type(buffer.dtype, kLanes);
  const auto vector = [&](unsigned k) {
    Value* address = element_address(s.buffer, b_.CreateNSWAdd(begin, b_.getInt64(k * kLanes)));
    return b_.CreateAlignedLoad(type, address, llvm::Align(kReadAlignment));
  };
  Value* read = shuffled(b_, vector(0), which, vector(1));
  if (near_->vectors == 4) {
    Value* high = shuffled(b_, vector(2), which, vector(3));
    Value* is_high = b_.CreateICmpUGE(which, widened(b_.getInt32(2 * kLanes), kLanes));
    read = b_.CreateSelect(is_high, high, read);
  }
  return scalars_.from_storage(buffer.dtype, read);
}

}  // namespace heddle::jit::cpu
