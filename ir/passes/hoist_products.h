// Products that a loop would compute again and again, before it.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Computes before a loop what its body multiplies that stays the same, and at once what a scan multiplies slice by slice by a matrix
/// that stays the same.
///
///   %1 = scan(%h, %x: f32[s0, 1, 400], %w: f32[400, 1600], %u) {body = @step, carried = 1, scanned = 1, length = s0}
///   graph @step(%h, %x: f32[1, 400], %w: f32[400, 1600], %u) { %1 = matmul(%x, %w); … }
///     ==>
///   %0 = matmul(%x, %w)
///   %1 = scan(%h, %0: f32[s0, 1, 1600], %u) {body = @step, carried = 1, scanned = 1, length = s0}
///
/// One product of many rows reads the matrix once, where the loop reads it in each iteration. A slice is also what the body gathers from
/// an operand of `length` slices by a number that it counts up from 0. What stays the same are operands that are not carried, those that
/// are handed on as they are, and what views, constants, arithmetic and reductions make of them. Views of parameters by which a product
/// multiplies become operands too: outside they are packed once.
///
/// Needs:   any verified graph.
/// Leaves:  products of slices in loops that may end before the last one, or by a matrix of few rows, or of over 8 times as many columns,
///          whose products would take much memory; what a condition computes; in nested graphs that call sizes otherwise than the graph
///          around them, all but products of slices by operands.
/// Order:   after canonicalise and merge-views, which make operands plain; before permuted-products.
/// Cost:    linear in nodes.
Graph hoist_products(const Graph& graph);

}  // namespace heddle::ir
