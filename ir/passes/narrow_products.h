// Products of matrices of a few columns.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Writes products that sum a few terms for a few columns as what they are for each element.
///
///   %1 = matmul(%0: f32[n, 2], %w: f32[2, 3])
///     ==>
///   %1 = add(add(0, mul(%0[:, 0:1], %w[0:1, :])), mul(%0[:, 1:2], %w[1:2, :]))
///
/// A tile of a product is some tens of columns wide, of which these leave nearly all empty, and packs what it reads. As elements
/// they are vectors along the rows, and are computed together with what makes the rows and what reads them. Points by rotations
/// and affine maps are such products. Where each batch has a matrix of its own, lanes read side by side only with many rows,
/// and only then (or with a matrix of four numbers at most, one row or one column) are they better off.
///
/// Needs:   any verified graph.
/// Leaves:  no matmul of f32 or f64 operands of two dimensions or more, neither by a library nor to be rounded, of 1 to 4 known
///          terms and columns, where all batches share the right matrix, or rows are at least 16.
/// Order:   after form-attention, which looks for products, and permuted-products; before merge-views, which sees slices.
/// Cost:    linear in nodes.
Graph narrow_products(const Graph& graph);

}  // namespace heddle::ir
