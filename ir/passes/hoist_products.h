// Products of a loop's slices, all at once.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Multiplies what a scan reads slice by slice by a matrix that stays the same before the loop.
///
///   %1 = scan(%h, %x: f32[s0, 1, 400], %w: f32[400, 1600], %u) {body = @step, carried = 1, scanned = 1, length = s0}
///   graph @step(%h, %x: f32[1, 400], %w: f32[400, 1600], %u) { %1 = matmul(%x, %w); … }
///     ==>
///   %0 = matmul(%x, %w)
///   %1 = scan(%h, %0: f32[s0, 1, 1600], %u) {body = @step, carried = 1, scanned = 1, length = s0}
///
/// One product of many rows reads the matrix once, where the loop reads it in each iteration. A slice is also what the body gathers from
/// an operand of `length` slices by a number that it counts up from 0.
///
/// Needs:   any verified graph.
/// Leaves:  loops that may end before their last slice, products whose matrix has few rows, and operands that something else reads too.
/// Order:   after canonicalise and merge-views, which make operands plain; before permuted-products.
/// Cost:    linear in nodes.
Graph hoist_products(const Graph& graph);

}  // namespace heddle::ir
