// Products by matrices that are stored as bytes, or as numbers of a few bits.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Makes numbers of bytes in the kernel that multiplies them, on CUDA: it reads one byte for each element of the matrix on
/// the right, where that would else be made once and lie in memory with two or four.
///
///   %b = convert(mul(convert(sub(convert(%w: u8[k, n]), %p)), %s)) {dtype = f16}     what DequantizeLinear is, or a cast
///   %y = matmul(%a: f16[m, k], %b)                                            after it
///     ==>
///   %y = dequantised_matmul(%a, %w, %s, %p)
///
/// Constant matrices of numbers of 2 or 4 bits (unpack_bits) stay packed: of eight or sixteen rows of a column one word is made when
/// the unit is built, and a kernel reads a quarter or half of a byte for each element (see bits_products.h):
///
///   %w = bit_panels(%numbers) {bits = 4, width = n}
///   %y = packed_bits_matmul(%a, %w, %s, %p less the middle) {bits = 4, columns = n, group = 32}
///
/// Scales and zero points are one for all, or differ along the columns, along the depth in groups (of a reshape that takes
/// these apart), or both. The numbers are those of the definition: exact differences, times scales, rounded once to f32 and
/// once to the product's dtype, or once to that; of few bits they need not be rounded, and zero points may be reals.
///
/// Of few rows a product takes as long as its matrix is read, and half the bytes or a quarter are read. Of many rows each tile
/// of 64 rows or more makes the numbers anew, which takes less than its tensor cores multiply by them: see
/// cuda::product_cycles(). So it is done whatever the rows are.
///
/// Needs:  decomposed ops, known sizes put in; quantised_products and byte_products before it, which take what they can.
/// Leaves: matrices of other numbers, zero points of bytes that may lie beyond their range, groups of rows that are no multiples
///         of eight, products of nodes that must not be fused, and all of the CPU's: see bits_products.
ir::Graph dequantised_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
