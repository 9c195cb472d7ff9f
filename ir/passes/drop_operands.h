// Operands of loops that nothing in them reads.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Takes out of scans and while loops what their nested graphs do not read, with what only that is computed for.
///
///   %1 = scan(%h, %x, %w, %u) {body = @step, carried = 1, scanned = 1, length = s0}
///   graph @step(%h, %x, %w, %u) { %1 = matmul(%h, %u) … }       which reads neither %x nor %w
///     ==>
///   %1 = scan(%h, %u) {body = @step, carried = 1, scanned = 0, length = s0}
///
/// Needs:   any verified graph.
/// Leaves:  carried values, the number of iterations, and operands that a size of the body is known by.
/// Order:   after hoist-products, which leaves such operands.
/// Cost:    linear in nodes.
Graph drop_operands(const Graph& graph);

}  // namespace heddle::ir
