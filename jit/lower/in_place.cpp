#include "jit/lower/in_place.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace heddle::jit {
namespace {

/// An access in the order of the text. Axes are named by the depth of their loop, so that accesses of
/// different loops of the same extents compare.
struct Access {
  std::vector<SymExpr> extents;  ///< of the loops around it, outermost first
  SymExpr index;
  std::size_t order;
  const ForStmt* loop;  ///< the innermost around it
};

class Accesses {
 public:
  explicit Accesses(const Nest& nest) { walk(nest.body); }

  /// Every read of `read` is at the index of every access of `written`, in equal loops, and before the first
  /// store. Since the stores of a loop hit distinct elements, no other iteration reads there.
  bool in_step(NestBufferId read, NestBufferId written) const {
    const auto loads = loads_.find(read);
    const auto stores = stores_.find(written);
    if (loads == loads_.end() || stores == stores_.end()) return false;
    if (blocked_.count(read) || blocked_.count(written) || stores_.count(read) != 0) return false;
    const std::vector<Access>& places = stores->second;
    const Access& first = places[0];
    const auto pairs = [&](const Access& access) {
      return access.extents == first.extents && access.index == first.index;
    };
    if (!std::ranges::all_of(places, pairs)) return stores_rows(loads->second, places, written);
    for (const Access& load : loads->second)
      if (load.order > first.order || !pairs(load)) return false;
    const auto again = loads_.find(written);
    if (again == loads_.end()) return true;
    for (const Access& load : again->second)
      if (load.order < first.order || !pairs(load)) return false;
    return true;
  }

 private:
  /// Whether each iteration of one loop reads what it then stores, several elements.
  bool stores_rows(const std::vector<Access>& loads, const std::vector<Access>& stores,
                   NestBufferId written) const {
    if (loads_.count(written) != 0) return false;
    const auto is_stored = [&](const Access& access) {
      return access.loop == stores[0].loop && std::ranges::any_of(stores, [&](const Access& store) {
               return access.loop == store.loop && access.index == store.index;
             });
    };
    return std::ranges::all_of(stores, is_stored) &&
           std::ranges::all_of(loads, [&](const Access& load) {
             return load.order < stores[0].order && is_stored(load);
           });
  }

  void walk(const Block& block) {
    for (const Stmt& statement : block)
      std::visit([&](const auto& node) { note(node); }, statement.node);
  }
  Access access(const SymExpr& index) {
    return {extents_, index.substitute(by_depth_), next_++, loop_};
  }
  void note(const LoadStmt& s) { loads_[s.buffer].push_back(access(s.index)); }
  void note(const StoreStmt& s) {
    if (s.combine || s.mask != kNoScalar) blocked_.insert(s.buffer);
    stores_[s.buffer].push_back(access(s.index));
  }
  void note(const ForStmt& s) {
    constexpr std::uint32_t kDepthAxis = 1u << 24;
    const auto depth = static_cast<std::uint32_t>(extents_.size());
    const SymExpr extent = s.extent.substitute(by_depth_);
    by_depth_.emplace(s.axis, SymExpr::axis(kDepthAxis + depth));
    extents_.push_back(extent);
    const ForStmt* around = std::exchange(loop_, &s);
    walk(*s.body);
    loop_ = around;
    extents_.pop_back();
    by_depth_.erase(s.axis);
  }
  void note(const IfStmt& s) {
    // Reads and stores under different conditions do not pair.
    constexpr std::uint32_t kConditionAxis = 1u << 25;
    extents_.push_back(SymExpr::axis(kConditionAxis + s.condition));
    walk(*s.body);
    extents_.pop_back();
  }
  void note(const ContractStmt& s) {
    for (const NestBufferId id : {s.acc, s.a.buffer, s.b.buffer}) blocked_.insert(id);
    if (s.b.windows && s.b.windows->outside) blocked_.insert(s.b.windows->outside->buffer);
    if (s.b.dequantised)
      for_each_part(*s.b.dequantised,
                    [&](const Dequantised::Part& part) { blocked_.insert(part.buffer); });
  }
  void note(const auto&) {}

  std::vector<SymExpr> extents_;
  base::SymbolExprs by_depth_;
  std::map<NestBufferId, std::vector<Access>> loads_;
  std::map<NestBufferId, std::vector<Access>> stores_;
  std::set<NestBufferId> blocked_;
  std::size_t next_ = 0;
  const ForStmt* loop_ = nullptr;
};

}  // namespace

std::vector<std::pair<NestBufferId, NestBufferId>> in_place_pairs(const Nest& nest) {
  const Accesses accesses(nest);
  std::vector<std::pair<NestBufferId, NestBufferId>> pairs;
  const std::uint32_t globals = nest.global_count();
  for (NestBufferId read = 0; read < globals; ++read) {
    for (NestBufferId written = 0; written < globals; ++written) {
      const NestBuffer& from = nest.buffers[read];
      const NestBuffer& to = nest.buffers[written];
      if (read == written || size_of(from.dtype) != size_of(to.dtype)) continue;
      if (from.count == to.count && accesses.in_step(read, written))
        pairs.emplace_back(read, written);
    }
  }
  return pairs;
}

}  // namespace heddle::jit
