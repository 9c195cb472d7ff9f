// Attention that a model writes out, as one op.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Replaces the product of a softmax over scores with values by `attention`, which keeps no scores in memory.
///
///   %k2 = permute(%k) {perm = [0, 1, 3, 2]}
///   %s  = matmul(%q, %k2)
///   %d  = div(%s, 8.0: f32)
///   %a  = add(%d, %mask)
///   %p  = softmax(%a)
///   %r  = matmul(%p, %v)
///     ==>
///   %k2 = permute(%k) {perm = [0, 1, 3, 2]}
///   %v0 = permute(%k2) {perm = [0, 1, 3, 2]}
///   %r  = attention(%q, %v0, %v, %mask) {scale = 0.125, nan_rows = true}
///
/// Between the products, from the scores on: any number of multiplications and divisions by known scalars and of
/// reshapes that keep the last two dimensions, with one tanh between them or none (`softcap`); at most one mask, added or chosen by `where` with a known scalar where
/// it hides; a softmax over the last dimension; such reshapes again. Scores have three or four dimensions (a product
/// of matrices alone is more often one with constant weights, which are packed), f32 or f64. A row in which all is
/// -inf is NaN, as before. Two masks added one after the other, the second to all windows of a batch, [batch, windows, heads, rows,
/// columns], are added up first, and windows and heads are the heads of one attention: as windows that are shifted hide parts of each other. Keys and values whose heads are repeated, each in a row by reshape, expand and reshape, are taken
/// as they were before.
///
/// Refused: when anything else reads a value in between, is ordered after it or it after anything; when the nodes have
/// different annotations, or one must run as its own kernel; when batches or masks broadcast in a way that sizes
/// do not show; when the number of heads is not known; when a row of values is longer than a tile (128), since scores
/// would be computed again for each part.
///
/// Needs:   any verified graph.
/// Leaves:  the replaced nodes without readers, for dce.
/// Order:   before decompose, which takes softmax apart.
/// Cost:    linear in nodes.
Graph form_attention(const Graph& graph);

}  // namespace heddle::ir
