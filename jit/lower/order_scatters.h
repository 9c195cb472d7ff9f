// Scatters whose updates run in parallel, with the results of running one after the other.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Replaces a scatter on CUDA by a sort of where its updates go and a scatter of sorted ones.
///
///   %y = scatter_nd(%x: f32[1000, 64], %i: i64[5000, 1], %u) {reduction = "add"}
///     ==>
///   %d = reshape(%i), from the end where negative, -1 where out of range
///   %s, %o = sort(%d)
///   %y = ordered_scatter(clone(%x), %s, %o, %u) {coordinates = 1, reduction = "add", in_place = [0]}
///
/// The updates of one slice are joined one after the other in their own order, as ever, so that results are the same in
/// each run; those of different slices at once. Of u updates that is O(u log^2 u) in parallel, and as many joins in a row
/// as the most that one slice has. Without a reduction only where the number of updates is known: it is mostly a few, as of
/// a cache, that go one after the other.
///
/// Of what stays as it is, x is copied by a kernel of its own: the scatter has as few blocks as it has parts. So is a large x on
/// the CPU where parts are pieces of rows, and nothing else is done there.
///
/// Needs:  decomposed ops, known sizes put in; what may overwrite its operand does.
/// Leaves: scatters of few updates, those with independent parts for all of the device, nodes that must not be fused, and
///         all others of the CPU's.
ir::Graph order_scatters(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
