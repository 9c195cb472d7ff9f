// Products of matrices of a few columns, and of a few rows.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Writes products that sum a few terms, for a few columns or for many, as what they are for each element.
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
/// Many columns are lanes in any case; of one to four terms a product's tiles take longer to begin than to sum (512 x 1 by 1 x 1024 0.37 of
/// the time, 512 x 4 by 4 x 1024 0.30; Zen 5).
///
/// Needs:   any verified graph.
/// Leaves:  no matmul of f32 or f64 operands of two dimensions or more, neither by a library nor to be rounded, of 1 to 4 known
///          terms, and of 16 and more columns, or of 1 to 4 where all batches share the right matrix, or rows are at least 16.
/// Order:   after form-attention, which looks for products, and permuted-products; before merge-views, which sees slices.
/// Cost:    linear in nodes.
Graph narrow_products(const Graph& graph);

}  // namespace heddle::ir
