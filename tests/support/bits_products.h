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

/// What a constant matrix of numbers in a graph is made of.
struct FewBitsWeights {
  std::int64_t depth = 256;
  std::int64_t columns = 96;
  std::int64_t bits = 4;    ///< 2, 4 or 8
  std::int64_t group = 32;  ///< rows that share a scale and a zero point
  DType zero = u8;          ///< u8: packed ones; f32: reals; bool: the middle of the range
  DType dtype = f32;        ///< of scales and of what they make
  bool by_row =
      false;  ///< numbers of a row lie side by side; else those of a column, as MatMulNBits has them
};

/// (numbers - zero) * scale of noise, [depth, columns].
ir::Value few_bits_matrix(ir::GraphBuilder& b, const FewBitsWeights& weights);

}  // namespace heddle::testing
