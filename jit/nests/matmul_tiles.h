// How a matmul is cut into tiles, so that what several of them read stays in a cache.
#pragma once

#include "jit/nest_builder.h"
#include "jit/program.h"

namespace heddle::jit {

/// Rows of a tile.
inline constexpr std::int64_t kTileRows = 32;
/// Rows that a copied part of the right operand is worth.
inline constexpr std::int64_t kRowsOfACopy = 16;

/// Rows of a tile that leave many threads about as much each, where tiles of kTileRows do not.
/// @param others  tiles beside each other, in all matrices
std::int64_t shared_tile(const LowerOptions& options, const SymExpr& rows, const SymExpr& others);
/// Rows of the largest tile that leaves enough of them for many threads, and for so many.
/// @param others  tiles beside each other, in all matrices
std::int64_t larger_tile(const LowerOptions& options, const SymExpr& rows, const SymExpr& others);

/// Columns of tiles for few rows that are longer runs of memory, two or four of which give two threads as much: one row by 768 x 3072
/// takes 0.7 of the time by 256 columns that it takes by 64, two rows by 128 columns 0.5.
std::int64_t wide_tile(const SymExpr& rows, const SymExpr& columns);

/// Tiles of rows that take turns at each panel.
struct RowBlocks {
  SymExpr count;
  SymExpr tiles;               ///< of each
  bool may_end_early = false;  ///< the last one may have fewer
};
/// Where panels, all of them, stay in the second-level cache, a block is one tile; where they do not, it is as many as stay there
/// themselves, so that neither rows nor panels come from memory more often than need be.
/// @param row_tiles  tiles of rows of a matrix
RowBlocks row_blocks_of(const NestBuilder& b, const SymExpr& row_tiles, const SymExpr& tile_bytes,
                        const SymExpr& panel_bytes);

/// The same of a right operand of so many bytes that has no panels: of a small one all columns are multiplied by a tile of rows, whose
/// results lie side by side then, and what follows need not wait for all rows.
RowBlocks given_row_blocks(const LowerOptions& options, const SymExpr& row_tiles,
                           const SymExpr& right_bytes);

/// A right operand that lies in memory as it is given.
struct GivenOperand {
  std::int64_t element_bytes;
  SymExpr depth, columns;
  SymExpr depth_stride, column_stride;  ///< in elements
};
/// Whether it pays to copy parts of it for each tile of so many rows, rather than to read them where they lie.
bool pays_to_copy(const LowerOptions& options, const GivenOperand& right, const SymExpr& rows);

/// Groups of a part of the depth for matrix registers. Sums come from memory and go back there for each part, which takes as long as some
/// groups of it: parts are as deep as the rows of a tile stay in the first-level cache, and about equal.
std::int64_t matrix_register_part(const SymExpr& groups);

/// One of so many contractions by the same panel.
struct PanelShare {
  SymExpr number;
  std::int64_t count;
};
/// Lets a contraction by the panel at `base` fetch its share of the next one, `stride` elements further on, if that is known.
void fetch_next_panel(ContractStmt& contraction, const SymExpr& base, const SymExpr& stride,
                      const PanelShare& share);

}  // namespace heddle::jit
