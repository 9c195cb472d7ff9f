// The matrix on the right of packed_bits_matmul and fixed_bits_matmul: numbers of a few bits in words, with scales.
#pragma once

#include <string_view>
#include <vector>

#include "ir/op.h"

namespace heddle::ir::ops {

/// Where its parts are among the operands of a node; the attributes bits, columns and group are the node's.
struct BitsMatrix {
  static constexpr std::size_t kWords = 1;
  static constexpr std::size_t kScale = 2;
  std::size_t zero;  ///< optional

  /// Constraints C3 to C10 of packed_bits_matmul, for products of `depth`.
  void require(const InferContext& ctx, const SymExpr& depth) const;
  /// (number - zero) * scale, row-major [depth, columns].
  std::vector<double> values(const EvalContext& ctx) const;
};

}  // namespace heddle::ir::ops
