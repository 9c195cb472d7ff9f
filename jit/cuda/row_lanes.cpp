#include "jit/cuda/row_lanes.h"

#include <algorithm>
#include <bit>

#include "jit/cuda/barriers.h"
#include "jit/cuda/loop_body.h"
#include "jit/cuda/wide_loop.h"

namespace heddle::jit::cuda {
namespace {

constexpr std::int64_t kWarp = 32;
/// Iterations of a loop that reduces: each lane of a warp then has eight.
constexpr std::int64_t kMostReduced = 256;
/// Iterations of a loop of at most so many, but perhaps far fewer, that a warp goes through.
constexpr std::int64_t kMostOfWarp = 512;

/// Fewer read less than a sector of memory.
constexpr std::int64_t kFewLanes = 8;

/// The extent, or what it is at most; 0: not known.
std::int64_t bound_of(const SymExpr& extent) {
  if (extent.is_constant()) return extent.constant();
  if (extent.kind() != SymExpr::Kind::Min) return 0;
  std::int64_t bound = 0;
  for (const SymExpr& operand : extent.operands())
    if (const std::int64_t one = bound_of(operand); one > 0 && (bound == 0 || one < bound))
      bound = one;
  return bound;
}

/// Whether it is the same in all parallel iterations.
bool is_same_for_all(const SymExpr& extent) {
  std::vector<Symbol> symbols;
  extent.collect_symbols(symbols);
  return std::ranges::all_of(
      symbols, [](const Symbol& symbol) { return symbol.kind == Symbol::Kind::Size; });
}

class LaneFinder {
 public:
  explicit LaneFinder(const Nest& nest) : nest_(nest) {}

  std::optional<RowLanes> run() {
    block(nest_.body, true);
    if (!fits_ || lanes_ == 0) return std::nullopt;
    return RowLanes{static_cast<std::uint32_t>(lanes_), reduces_};
  }

 private:
  void block(const Block& statements, bool uniform) {
    for (const Stmt& statement : statements) {
      if (std::holds_alternative<ContractStmt>(statement.node)) fits_ = false;
      if (const auto* branch = std::get_if<IfStmt>(&statement.node)) block(*branch->body, false);
      const auto* loop = std::get_if<ForStmt>(&statement.node);
      if (loop == nullptr) continue;
      if (loop->kind == ForStmt::Kind::Scan) fits_ = false;
      if (loop->kind == ForStmt::Kind::Vector)
        vector(*loop, uniform);
      else
        block(*loop->body, uniform && is_same_for_all(loop->extent));
    }
  }

  void vector(const ForStmt& loop, bool uniform) {
    const std::int64_t bound = bound_of(loop.extent);
    const bool exact = loop.extent.is_constant();
    const bool reduces = !loop.reductions.empty();
    if (exact && bound == 0) return;
    const bool is_flat = std::ranges::all_of(*loop.body, is_scalar);
    fits_ = fits_ && bound != 0 && (exact || (is_flat && bound <= kMostOfWarp)) &&
            (!reduces || (uniform && bound <= kMostReduced));
    if (!fits_) return;
    const std::int64_t lanes = exact ? lanes_of(loop, bound) : kWarp;
    lanes_ = std::max(lanes_, lanes);
    reduces_ = reduces_ || reduces;
  }

  /// As many as leave few without work.
  std::int64_t lanes_of(const ForStmt& loop, std::int64_t count) const {
    const auto wide = wide_loop(nest_, loop, 1, [](const SymExpr&) { return true; });
    if (wide) count /= wide->width;
    const auto size = static_cast<std::uint64_t>(count);
    auto lanes = static_cast<std::int64_t>(wide ? std::bit_floor(size) : std::bit_ceil(size));
    const auto rounds = [&] { return (count + lanes - 1) / lanes; };
    while (lanes > kFewLanes && 4 * count < 3 * rounds() * lanes) lanes /= 2;
    return lanes;
  }

  const Nest& nest_;
  bool fits_ = true;
  bool reduces_ = false;
  std::int64_t lanes_ = 0;
};

}  // namespace

std::optional<RowLanes> row_lanes(const Nest& nest, std::uint32_t block_threads) {
  if (nest.buffers.size() != nest.global_count() || !barriers_of(nest).empty()) return std::nullopt;
  std::optional<RowLanes> found = LaneFinder(nest).run();
  if (!found) return std::nullopt;
  if (found->reduces) found->lanes = std::min<std::uint32_t>(found->lanes, kWarp);
  const std::int64_t rows = block_threads / found->lanes;
  const SymExpr& extent = nest.parallel_extent;
  if (rows < 2 || (extent.is_constant() && extent.constant() < rows)) return std::nullopt;
  return found;
}

}  // namespace heddle::jit::cuda
