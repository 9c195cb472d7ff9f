// CUDA C++ text of nests in attention form (jit/nest.h): a kernel for each way to attend, whose text is the place of a
// tile, calls of the prelude's hd_attention_tile, and the nest's own expressions on each score and each sum.
#pragma once

#include <optional>
#include <vector>

#include "jit/cuda/attention_tile.h"
#include "jit/cuda/emit.h"

namespace heddle::jit::cuda {

/// The parts of a nest in attention form. Points into the nest.
struct AttentionParts {
  const Nest* nest = nullptr;
  std::vector<const Stmt*> before;  ///< scalars at block level
  const ForStmt* tiles = nullptr;   ///< of keys
  std::vector<const Stmt*> of_tile;
  const ContractStmt* scores = nullptr;
  const ForStmt* score_rows = nullptr;
  std::vector<const Stmt*> of_score_row;
  const ForStmt* score_columns = nullptr;
  const StoreStmt* score = nullptr;  ///< in the loop over columns: the final score
  const ContractStmt* sums = nullptr;
  const ForStmt* rows = nullptr;
  std::vector<const Stmt*> of_row;
  const ForStmt* columns = nullptr;
  std::int64_t group =
      1;  ///< heads of queries that share one of keys and values; 1 where that is not known, too
  SymExpr head_stride;  ///< of queries, where they are several

  DType dtype() const { return nest->buffers[scores->a.buffer].dtype; }
  std::int64_t depth() const { return scores->depth.constant(); }
  std::int64_t value_columns() const { return sums->tile_columns; }
};

/// The parts, if `nest` is in attention form.
std::optional<AttentionParts> attention_parts(const Nest& nest);

CudaSource emit_attention(const AttentionParts& parts, const AttentionTile& tile,
                          const CudaOptions& options);

}  // namespace heddle::jit::cuda
