// Products by constant matrices of small numbers with scales, whose kernels read the numbers packed.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// A product by (numbers - zero) * scale. Values are in the graph that is being made.
struct BitsProduct {
  ir::Value left;
  ir::Value numbers;   ///< u8 or i8 [k, n]
  ir::Value scale;     ///< [g or 1, n or 1]
  ir::Value zero;      ///< of such sizes; none: middle_of(numbers)
  std::int64_t bits;   ///< 2, 4 or 8: of a number
  std::int64_t group;  ///< rows that share a row of scale and zero; 0: all
  bool tf32 = false;   ///< as matmul's
};

/// Rows of fixed-point numbers, as fixed_bits_matmul takes them.
struct FixedRows {
  ir::Value digits;
  ir::Value scale;
  ir::Value sums;
  std::int64_t block;
};

/// Columns of a row that share a scale where it is multiplied by `product`'s matrix: 128 at most; 0: too few to be worth it.
std::int64_t block_of(const BitsProduct& product);
/// The rows of `left`, of f16, bf16 or f32, in so many digits, each off by at most about 256^-digits times the largest magnitude
/// of its block; rows that hold an infinity or a NaN become NaN.
FixedRows emit_fixed_rows(ir::GraphBuilder& builder, ir::Value left, std::int64_t digits,
                          std::int64_t block);

/// Bits of each of the numbers, which are views of unpack_bits or bytes.
std::int64_t bits_of(ir::Value numbers);
/// The number that bit_panels makes 0.
std::int64_t middle_of(ir::Value numbers);
/// Whether the sizes are known, and groups are whole words of rows.
bool fits_words(const BitsProduct& product);
/// Whether `numbers`, which a product reads as `matrix`, are worth it: bytes of a matrix that stays in the second-level cache
/// as f32 are read faster so by many rows.
bool takes_bits_product(ir::Value numbers, ir::Value matrix);

/// Columns of the one panel that kernels on CUDA read: all, in whole 16 bytes of words.
std::int64_t whole_width(ir::Value numbers);

/// Of a product for which fits_words() holds, in panels of `width` columns:
///
///   %w = bit_panels(%numbers) {bits = 4, width = 64}
///   %y = packed_bits_matmul(%left, %w, panels of %scale, panels of %zero less the middle) {bits = 4, columns = n, group = 32}
///
/// With `rows`, those of left, fixed_bits_matmul in its place.
ir::Value emit_bits_product(ir::GraphBuilder& builder, const BitsProduct& product,
                            std::int64_t width, const FixedRows* rows = nullptr);

/// Does so on the CPU with products by constant matrices that are dequantised, whatever their rows are: of few rows a product
/// takes as long as its matrix is read, a half or an eighth of its bytes; of many, a tile of 32 rows makes the numbers once.
/// Where the CPU multiplies bytes, rows are put in fixed point, once for all products that read them: three digits hold rows of
/// f32 as exactly as its products round, two hold f16, bf16 and rows that may be rounded to bf16, one what may be rounded to i8.
/// The operands are those that dequantised_products() finds, and zero points that are reals.
///
/// Needs:  decomposed ops, known sizes put in; quantised_products before it, pack_weights behind.
/// Leaves: matrices that are not constant, small or not of whole words of rows, groups that are no multiples of eight, products
///         of two matrices of bytes or of nodes that must not be fused, and all of CUDA's: see
///         dequantised_products.
ir::Graph bits_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
