// Sums over rows of what each row of one operand makes with each row of another.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Puts the rows that such a reduction pairs side by side, for the CPU: distances between points are one.
///
///   %d = sub(%x: f32[256, 1, 64], %y: f32[1, 128, 64])
///   %s = reduce_sum(mul(%d, %d)) {axes = [2]}                        [256, 128]
///     ==>
///   %t = clone(permute(%y) {perm = [0, 2, 1]})                       [1, 64, 128]
///   %d = sub(permute(%x) {perm = [0, 2, 1]}, %t)                     [256, 64, 128]
///   %s = reduce_sum(mul(%d, %d)) {axes = [1]}
///
/// Lanes are then neighbouring results and not neighbouring terms: an element of %x is read once for all of them, and no lanes are
/// joined for each result. 256 x 128 distances of 64 take 0.39 of the time. The terms of a sum are added one after
/// the other, as those of products are.
///
/// Needs:  decomposed ops, known sizes put in.
/// Leaves: sums of more than 256 terms or of unknown length, few or an unknown number of neighbouring results, operands that
///         are large beside the pairs, what something else reads of the pairs, nodes that must not be fused, all of CUDA's.
ir::Graph turned_sums(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
