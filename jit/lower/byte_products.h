// Products of bytes that a graph writes with wide integers.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// An i32 matrix as bytes less a zero point.
struct ByteOperand {
  ir::Value bytes;  ///< u8 or i8
  ir::Value
      zero;  ///< i32; none: 0. On the left one for all or for each row, on the right for all or for each column
};

/// matmul of two such operands, the right one a single matrix unless neither has zero points.
struct ByteProduct {
  ByteOperand left;
  ByteOperand right;
};

/// The bytes behind the operands of `matmul`; nothing where an operand is anything else.
///
///   %r = matmul(sub(convert(%x: u8[m, k]), %p), convert(%w: i8[k, n]))
std::optional<ByteProduct> byte_product_of(const ir::Node& matmul);

/// The same product of packed bytes: exact, as all sums wrap modulo 2^32. With x and w as above, p and q their zero points:
///
///   packed_int8_matmul(x, panels of w) - p * (sum of w's columns - k * q) - q * sum of x's rows
///
/// where a term whose zero point is known to be 0 is left out. Bytes with a sign on the left, and without one on the
/// right, are moved by 128 with their zero points.
/// `product`: what byte_product_of() gave, its values in the graph that `builder` makes.
///
/// Where options say that pairs are multiplied, kernels want to know whether any u8 times two neighbours of w add up to an i16. Of
/// matrices, split_byte_pairs makes panels in which they do, and few groups beside them:
///
///   %p, %r, %places, %counts = split_byte_pairs(panels of w)
///   packed_int8_matmul(x, %p, none, %r, %places, %counts)
///
/// 0.63 to 0.66 of the cycles of pairs of 16 bits with weights that one scale quantises (Zen 3). Of the weights of convolutions and loops,
/// and of depths that are no whole groups, whether all of them do is computed beside the panels:
///
///   le(max(reduce_max(positive parts of both, added), reduce_max(negative ones)), 128)
ir::Value emit_byte_product(ir::GraphBuilder& builder, const ByteProduct& product,
                            const LowerOptions& options);

/// The same of two operands that are other ones in each run, of as many matrices and of constant sizes, with one zero point each:
///
///   packed_int8_matmul(x, byte_panels(w)) - p * (sums of w's columns - k * q) - q * sums of x's rows
ir::Value emit_given_byte_product(ir::GraphBuilder& builder, const ByteProduct& product,
                                  const LowerOptions& options);

/// The right operand of emit_byte_product() made ready once for many products, as before a loop.
struct BytePanels {
  ir::Value panels;  ///< of bytes with a sign
  ir::Value
      sums;  ///< i32 [n], of the columns less their zero points: what a zero point on the left adds, once for each of it
  ir::Value zero;       ///< i32; none: 0
  ir::Value pairs_fit;  ///< bool; none: not known
  std::int64_t columns = 0;
};
BytePanels emit_byte_panels(ir::GraphBuilder& builder, const ByteOperand& right,
                            const LowerOptions& options);
/// @param right  values of the graph that `builder` makes
ir::Value emit_byte_product(ir::GraphBuilder& builder, const ByteOperand& left,
                            const BytePanels& right, const LowerOptions& options);

/// Groups of a convolution that are multiplied as one, so that their columns fill a vector: the filters of each have zeros for the
/// channels of the others.
std::int64_t joined_groups(const ir::Node& conv);

/// Whether bytes stand for numbers with a sign: without a zero point, or in the middle of those that have none.
bool has_middle_zero(const ByteOperand& operand);

/// The convolution `conv` with its channels last, whose windows are the rows on the left: packed_int8_conv with the terms of
/// emit_byte_product(), the last one being q times the sums over x's channels, summed over the taps of each window.
/// `product`: x as bytes [n, in..., c] less one zero point for all, and the weights as the matrix [taps * c, m]; of several groups
/// [taps * c / groups, m], with has_middle_zero().
ir::Value emit_byte_conv(ir::GraphBuilder& builder, const ByteProduct& product,
                         const ir::Node& conv, const LowerOptions& options);

/// The same for CUDA, as int8_conv with the channels where `conv` has them: i32 sums less what the zero point of x adds to them.
/// Nothing where the weights have a zero point, or too few channels or too many taps for a kernel, or where that of x may be no
/// element of x's dtype, which it is beyond the images.
/// `product`: x as bytes as `conv` takes them, less one zero point for all, and the weights [m, c, k...].
ir::Value emit_plain_byte_conv(ir::GraphBuilder& builder, const ByteProduct& product,
                               const ir::Node& conv);

/// Multiplies bytes as such on CUDA, whose tensor cores do.
///
///   %r = matmul(sub(convert(%x: u8[m, k]), %p), convert(%w: i8[k, n]))
///     ==>
///   %r = sub(int8_matmul(%x, %w), mul(%p, reduce_sum(convert(%w)) {axes = [0]}))
///
/// and a product of bytes with sums of bytes becomes one with wide sums, cut to the bytes that they end in. The terms are
/// those of emit_byte_product().
///
/// Needs:  decomposed ops, known sizes put in.
/// Leaves: products of other integers, products of nodes that must not be fused, those of two operands with zero points
///         whose depth is not known, and all of the CPU's as they are.
ir::Graph byte_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
