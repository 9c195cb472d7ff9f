#include "jit/nests/matmul_tiles.h"

#include <algorithm>

#include "jit/lower/pack_weights.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

/// Tiles that keep many threads busy, and each of more threads.
constexpr std::int64_t kEnoughTiles = 24;
constexpr std::int64_t kEnoughTilesEach = 4;
/// Panels of so many bytes stay in a second-level cache beside the rows of a: 3136 rows by 256 x 64 take 0.85 times
/// as long as where all rows come again for each panel. 1 MB of panels takes longer so, with rows that all stay
/// there.
constexpr std::int64_t kResidentBytes = 512 * 1024;
/// Rows of a of so many bytes stay there while all panels are multiplied by them, where these do not and all rows are more than
/// kFarBytes: 8649 rows by 480 x 480 go at 104 Gflop/s, which went at 88 with all rows for each panel. Rows of 1.6 MB go 4 % faster
/// so, by 768 x 3072.
constexpr std::int64_t kBlockBytes = 384 * 1024;
constexpr std::int64_t kFarBytes = 4 * 1024 * 1024;

/// Blocks go through the rows of a right operand many times, and rows of a large one lie on pages of their own and share few sets of
/// the first-level cache; those of a tile, copied, lie on few pages. 0.64 to 0.92 of the time for 16 to 128 rows by matrices of 2 MB
/// and more with AVX2 (Zen 3), 0.34 to 0.92 with AVX-512 (Xeon); 0.96 to 1.2 by smaller ones, which are left where they are.
bool is_large(const GivenOperand& right) {
  constexpr std::int64_t kLargeBytes = 2 * 1024 * 1024;
  const SymExpr bytes = right.depth * right.columns * right.element_bytes;
  return bytes.is_constant() && bytes.constant() >= kLargeBytes;
}

/// Whether vectors of it, as long as a line, mostly lie on two, and each is read often enough for a copy where none does: 256 rows by
/// 256 x 196 take 0.85 of the time, 64 by 200 x 900 as well; 64 columns, or a depth of 64, would take 1.06 to 1.3.
bool crosses_lines(const GivenOperand& right, std::int64_t vector_bytes) {
  constexpr std::int64_t kLineBytes = 64;
  constexpr std::int64_t kLeastDepth = 192;
  const SymExpr row_bytes = right.depth_stride * right.element_bytes;
  return vector_bytes == kLineBytes && row_bytes.is_constant() &&
         row_bytes.constant() % kLineBytes != 0 && right.depth.is_constant() &&
         right.depth.constant() >= kLeastDepth && right.columns.is_constant() &&
         right.columns.constant() >= 2 * kPanelColumns;
}

}  // namespace

std::int64_t shared_tile(const LowerOptions& options, const SymExpr& rows, const SymExpr& others) {
  if (!has_many_threads(options)) return kTileRows;
  if (!rows.is_constant() || !others.is_constant()) return kTileRows / 2;
  // Smaller tiles read panels more often: half as many rows take 1.02 times as long a row, and half of these again.
  const auto cost = [&](std::int64_t tile) {
    const std::int64_t tiles = (rows.constant() + tile - 1) / tile * others.constant();
    return (tiles + options.threads - 1) / options.threads * (tile * 100 + 2 * kTileRows);
  };
  std::int64_t best = kTileRows;
  for (const std::int64_t tile : {kTileRows / 2, kTileRows / 4})
    if (cost(tile) < cost(best)) best = tile;
  return best;
}

std::int64_t larger_tile(const LowerOptions& options, const SymExpr& rows, const SymExpr& others) {
  const std::int64_t enough = std::max(kEnoughTiles, kEnoughTilesEach * options.threads);
  if (!rows.is_constant() || !others.is_constant()) return kTileRows;
  for (const std::int64_t tile : {4 * kTileRows, 2 * kTileRows})
    if (rows.constant() / tile * others.constant() >= enough) return tile;
  return kTileRows;
}

std::int64_t wide_tile(const SymExpr& rows, const SymExpr& columns) {
  const std::int64_t most = (rows.is_constant(1) ? 4 : 2) * kPanelColumns;
  if (!columns.is_constant()) return most;
  const std::int64_t tiles = (columns.constant() + 2 * most - 1) / (2 * most) * 2;
  const std::int64_t each = (columns.constant() + tiles - 1) / tiles;
  return (each + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}

std::int64_t matrix_register_part(const SymExpr& groups) {
  constexpr std::int64_t kMost = 256;
  constexpr std::int64_t kStep = 16;
  if (!groups.is_constant()) return kMost;
  const std::int64_t parts = std::max<std::int64_t>(1, (groups.constant() + kMost - 1) / kMost);
  const std::int64_t each = (groups.constant() + parts - 1) / parts;
  return std::max(kStep, (each + kStep - 1) / kStep * kStep);
}

void fetch_next_panel(ContractStmt& contraction, const SymExpr& base, const SymExpr& stride,
                      const PanelShare& share) {
  if (!stride.is_constant()) return;
  contraction.ahead_count = (stride.constant() + share.count - 1) / share.count;
  contraction.ahead = base + stride + share.number * contraction.ahead_count;
}

RowBlocks row_blocks_of(const NestBuilder& b, const SymExpr& row_tiles, const SymExpr& tile_bytes,
                        const SymExpr& panel_bytes) {
  if (panel_bytes.is_constant() && panel_bytes.constant() <= kResidentBytes) return {row_tiles, 1};
  if (!tile_bytes.is_constant()) return {1, row_tiles};
  const std::int64_t bytes = std::max<std::int64_t>(1, tile_bytes.constant());
  const std::int64_t most = std::max<std::int64_t>(1, kBlockBytes / bytes);
  const std::int64_t far = kFarBytes / bytes + 1;
  if (row_tiles.is_constant() && row_tiles.constant() < far) return {1, row_tiles};
  // 1 for fewer tiles than that.
  const SymExpr is_far = min(floordiv(row_tiles, far), 1);
  const SymExpr count = b.simplify(is_far * (ceildiv(row_tiles, most) - 1) + 1);
  const SymExpr tiles = b.simplify(ceildiv(row_tiles, count));
  return {count, tiles, !b.simplify(count * tiles - row_tiles).is_constant(0)};
}

RowBlocks given_row_blocks(const LowerOptions& options, const SymExpr& row_tiles,
                           const SymExpr& right_bytes) {
  constexpr std::int64_t kSmallBytes = std::int64_t{64} << 10;
  const bool is_small = options.target == LowerOptions::Target::Cpu && right_bytes.is_constant() &&
                        right_bytes.constant() <= kSmallBytes;
  return is_small ? RowBlocks{row_tiles, 1} : RowBlocks{1, row_tiles};
}

bool pays_to_copy(const LowerOptions& options, const GivenOperand& right, const SymExpr& rows) {
  constexpr std::int64_t kNarrowBytes = 16;
  if (options.target != LowerOptions::Target::Cpu || options.vector_bytes <= kNarrowBytes)
    return false;
  const bool lies_apart =
      !right.depth_stride.is_constant(kPanelColumns) && right.column_stride.is_constant(1);
  const bool are_few = rows.is_constant() && rows.constant() < kRowsOfACopy;
  return (is_large(right) || crosses_lines(right, options.vector_bytes)) && lies_apart && !are_few;
}

}  // namespace heddle::jit
