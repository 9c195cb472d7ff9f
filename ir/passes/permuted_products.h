// Products of rows in another order.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Multiplies rows by a matrix in the order that they lie in, and reorders the products.
///
///   %1 = permute(%0: f32[b, t, k]) {perm = [1, 0, 2]}
///   %2 = matmul(%1, %w: f32[k, n])
///     ==>
///   %1 = matmul(%0, %w)
///   %2 = permute(%1) {perm = [1, 0, 2]}
///
/// Rows that lie behind each other are rows of one matrix, where those of a permute are b matrices of t rows apart, tiles of
/// which are mostly empty when b or t is small. Recurrent layers read sequences so.
///
/// Needs:   any verified graph.
/// Leaves:  no matmul of one matrix on the right with a permute that keeps the last dimension on the left.
/// Order:   after push-permutes, which brings permutes of what pointwise ops make to the product.
/// Cost:    linear in nodes.
Graph permuted_products(const Graph& graph);

}  // namespace heddle::ir
