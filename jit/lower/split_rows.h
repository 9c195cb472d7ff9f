// Reductions of long rows in two steps, so that more blocks of threads than there are rows have work.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Replaces a reduction of few long rows by reductions of parts of them and one of their results, for CUDA.
///
///   %s = reduce_max(%x: f32[4, 131072]) {axes = [1]}
///     ==>
///   %p = reduce_max(reshape(%x) {sizes = [4, 32, 4096]}) {axes = [2]}
///   %s = reduce_max(%p) {axes = [1]}
///
/// and an argmax by the best part, of the first best elements of all parts.
///
///   %i = argmax(%x: f32[4, 131072]) {axis = 1}
///     ==>
///   %r = reshape(%x) {sizes = [4, 32, 4096]}
///   %b = argmax(reduce_max(%r) {axes = [2]}) {axis = 1, keepdims = true}
///   %i = %b * 4096 + gather_elements(argmax(%r) {axis = 2}, %b)
///
/// One block of threads reads 20 GB/s or so, of 4800 that the memory of an H200 has; what a softmax reads again comes from
/// the caches in either form. Where parts of one size do not make up a row, it is padded with what changes nothing. Parts
/// are the same on each device, and so are the results.
///
/// Needs:  decomposed ops, known sizes put in.
/// Leaves: rows of fewer than 32768 elements or of unknown length, many rows, nodes that must not be fused, and all of the
///         CPU's as they are.
ir::Graph split_rows(const ir::Graph& graph, const LowerOptions& options);

/// Replaces variances of such rows by what they decompose into, for split_rows() to take up.
ir::Graph decompose_row_variances(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
