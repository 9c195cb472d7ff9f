// A tile of a contraction: contract_emitter.cpp and pair_contract_emitter.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>

#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {

struct NestEmitter::Tile {
  const ContractStmt& s;
  unsigned lanes;    ///< elements of an accumulator vector
  unsigned rows;     ///< of a block
  unsigned vectors;  ///< of a block's row
  llvm::Value* row_count;
  llvm::Value* column_count;
  llvm::Value* depth;
  llvm::Value *a_base, *a_row, *a_column;
  llvm::Value *b_base, *b_row, *b_column;
  unsigned sums;                     ///< vectors of sums for each vector of a block's row
  unsigned columns;                  ///< of the tile, in vectors
  std::int64_t line;                 ///< elements of b in a line of the caches
  std::optional<std::int64_t> last;  ///< columns of the last tile
  llvm::Value* panel = nullptr;      ///< rows of b packed side by side, read in place of b
  /// Whether the sums go on from memory; null: as the statement says.
  llvm::Value* resumes = nullptr;
  /// Element of b that the first pass over these rows fetches; null: none.
  llvm::Value* ahead = nullptr;

  std::int64_t panel_columns() const { return static_cast<std::int64_t>(columns) * lanes; }
  unsigned passes_a_row() const { return columns / vectors; }
  /// Steps of the depth in which a pass fetches one line, so that all passes of a full tile fetch at least as much as
  /// they multiply. A power of two, which leaves no steps over of a part's depth, and few enough to be written out.
  unsigned steps_a_line() const {
    const std::int64_t passes = s.tile_rows / rows * passes_a_row();
    const std::int64_t lines = std::max<std::int64_t>(1, s.tile_columns * s.group / line);
    constexpr std::int64_t kMost = 8;
    return std::bit_floor(
        static_cast<unsigned>(std::clamp<std::int64_t>(passes / lines, 1, kMost)));
  }
  /// Elements of b that one pass fetches.
  llvm::Value* fetched(llvm::IRBuilderBase& b) const;
};

}  // namespace heddle::jit::cpu
