// Reductions of a whole tensor in two steps, so that the first one runs in parallel.
#pragma once

#include "ir/graph.h"

namespace heddle::jit {

/// Replaces a reduction of all elements by reductions of blocks and one of their results.
///
///   %s = reduce_sum(%x: f32[100000]) {axes = [0]}
///     ==>
///   %p = reshape(pad(%x, 0.0) {high = [14688]}) {sizes = [7, 16384]}
///   %s = reduce_sum(reduce_sum(%p) {axes = [1]}) {axes = [0]}
///
/// Of a tensor of unknown size only when nothing but scalars reads the result: otherwise one kernel that
/// reads the tensor again right away is better. Blocks are the same for any number of threads, and so are
/// the results.
///
/// Needs:  nothing.
/// Leaves: arg-reductions as they are.
ir::Graph split_reductions(const ir::Graph& graph);

/// Replaces variances of whole tensors by what they decompose into, for split_reductions() to take up.
ir::Graph decompose_variances(const ir::Graph& graph);

}  // namespace heddle::jit
