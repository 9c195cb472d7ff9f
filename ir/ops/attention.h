// What attention and attention over parts of the keys share.
#pragma once

#include <limits>
#include <vector>

#include "ir/op.h"

namespace heddle::ir::ops {

inline constexpr double kHiddenScore = -std::numeric_limits<double>::infinity();

/// What attention gives.
struct AttentionResult {
  DType dtype;
  Dims sizes;  ///< [B, H, Lq, Dv]
};
/// Checks the operands of attention and "softcap" by its constraints C1 to C10.
AttentionResult check_attention(const InferContext& ctx);

/// What one evaluation works on. A row is a query's number among all [B, H, Lq].
struct AttentionProblem {
  std::int64_t batch, heads, shared_heads, queries, keys, size, value_size;
  double scale;
  double softcap;
  bool causal;
  double hidden;
  std::vector<double> q, k, v;
  Literal mask;  ///< in full size; null data without a mask
  bool masked;

  std::int64_t rows() const { return batch * heads * queries; }
  /// The score of a key for the query of a row.
  double score(std::int64_t row, std::int64_t key) const;
  /// Which of the rows of k and v is the first that a row reads.
  std::int64_t first_key(std::int64_t row) const;
};
/// Operands of attention converted to `dtype`.
AttentionProblem attention_problem(const EvalContext& ctx, DType dtype);

OpDef attention_parts_op();
OpDef join_attention_op();

}  // namespace heddle::ir::ops
