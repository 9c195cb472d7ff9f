// Permutes meet and vanish.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Pushes permutes through ops that do not care about the order of dimensions, where that leaves fewer.
///
///   %1 = permute(%0) {perm = [0, 2, 3, 1]}
///   %2 = relu(%1)
///   %3 = reduce_max(%2) {axes = [3], keepdims = true}
///   %4 = sub(%2, %3)
///   %5 = permute(%4) {perm = [0, 3, 1, 2]}
///     ==>
///   %2 = relu(%0)
///   %3 = reduce_max(%2) {axes = [1], keepdims = true}
///   %4 = sub(%2, %3)
///
/// Pointwise ops, reductions, softmax, cumsum, concat, slice, pad, reverse and expand are computed in the order
/// that their neighbours have; permutes of permutes are one; a permute that moves dimensions of size 1 only
/// becomes a reshape; constants, parameters and operands of matmul take one for free (see Layouts for what
/// is counted).
///
/// Needs:   any verified graph; decompose first, so that norms are reductions and pointwise ops.
/// Leaves:  no more permutes that move data than there were.
/// Order:   after merge-views; before cse and dce, which clean up.
/// Cost:    linear in nodes, times the orders that meet at a group.
Graph push_permutes(const Graph& graph);

}  // namespace heddle::ir
