// Matrices of numbers of a few bits, in words and as reals.
#pragma once

#include "tests/support/one_op.h"

namespace heddle::testing {

/// A matrix of noise on the right of packed_bits_matmul and fixed_bits_matmul.
struct BitsMatrixNoise {
  std::int64_t depth;
  std::int64_t columns;
  std::int64_t bits = 4;
  std::int64_t group = 0;
  DType zero = DType::Bool;  ///< bool: none
  DType scale = f32;
  std::int64_t width = 64;

  ir::Literal words() const;
  ir::Literal scales() const;
  /// A default Literal where there is none.
  ir::Literal zeros() const;
  ir::Attrs attrs() const;
  /// What it stands for: f32 [depth, columns].
  ir::Literal reals() const;

 private:
  ir::Literal numbers() const;
  /// [p, g, w] of `plain` [g, columns], noise beyond the columns.
  ir::Literal in_panels(const ir::Literal& plain) const;
  ir::Literal plain_scales() const;
  ir::Literal plain_zeros() const;
  std::int64_t groups() const { return group == 0 ? 1 : depth / group; }
};

/// Operands digits, row_scale and row_sums of fixed_bits_matmul for noise, and the reals f32 [rows, depth] that they stand for.
/// The blocks of all rows have the same sums.
struct FixedNoise {
  FixedNoise(std::int64_t rows, std::int64_t depth, std::int64_t count, std::int64_t block);
  ir::Literal digits, scale, sums, reals;
};

OneOp packed_bits_product(const ir::Literal& a, const BitsMatrixNoise& matrix);
OneOp fixed_bits_product(const FixedNoise& rows, std::int64_t block, const BitsMatrixNoise& matrix);

}  // namespace heddle::testing
