// Reductions of a whole tensor in two steps, so that the first one runs in parallel.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Replaces a reduction of all elements by reductions of blocks and one of their results.
///
///   %s = reduce_sum(%x: f32[100000]) {axes = [0]}
///     ==>
///   %p = reduce_sum(reshape(slice(%x) {limit = [98304]}) {sizes = [6, 16384]}) {axes = [1]}
///   %r = reduce_sum(slice(%x) {start = [98304]}) {axes = [0]}
///   %s = reduce_sum(concat(%p, reshape(%r) {sizes = [1]})) {axes = [0]}
///
/// What has no whole number of blocks but unknown size is filled up with what changes no result.
/// Of a tensor of unknown size only when nothing but scalars reads the result: otherwise one kernel that
/// reads the tensor again right away is better. Blocks are the same for any number of threads, and so are
/// the results.
///
/// Needs:  nothing.
/// Leaves: arg-reductions as they are.
ir::Graph split_reductions(const ir::Graph& graph);

/// Does the same for few results of a long reduction over dimensions in front of those that are kept.
///
///   %s = reduce_sum(%x: f32[1, 120, 160, 96]) {axes = [1, 2]}
///     ==>
///   %p = reduce_sum(%x) {axes = [2], keepdims = true}
///   %s = reshape(reduce_sum(%p) {axes = [1], keepdims = true}) {sizes = [1, 96]}
///
/// One long dimension is taken apart where a divisor of it makes blocks of 16 to 256; of unknown sizes only what runs over
/// several dimensions.
///
/// Needs:  nothing.
/// Leaves: all of CUDA's, for split_columns(); reductions that something of the operand's size is computed from, as in a norm:
///         one kernel does it all.
ir::Graph split_across(const ir::Graph& graph, const LowerOptions& options);

/// Replaces variances of whole tensors by what they decompose into, for split_reductions() to take up.
ir::Graph decompose_variances(const ir::Graph& graph);

}  // namespace heddle::jit
