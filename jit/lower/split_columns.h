// Reductions of long columns in parts, so that enough threads have work.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Replaces a reduction that is followed by dimensions which are kept, and has few results, by one of parts of its columns and
/// one of their results, for CUDA.
///
///   %s = reduce_sum(%x: f32[1048576, 64]) {axes = [0]}
///     ==>
///   %p = reduce_sum(reshape(%x) {sizes = [1, 512, 512, 256]}) {axes = [2]}
///   %t = permute(reshape(%p) {sizes = [1, 2048, 64]}) {perm = [0, 2, 1]}
///   %s = reshape(reduce_sum(%t) {axes = [2]}) {sizes = [64]}
///
/// A thread goes over its part alone, so there are as many parts as threads that keep a large device's memory busy; several rows
/// of few columns lie side by side, as many as make up a block of threads. What is left of a column is reduced by a block of
/// threads, or where it is short by one thread.
/// Where parts of one size do not make up a column, it is padded with what changes nothing. Parts are the same on each device,
/// and so are the results.
///
/// An argmax is replaced by the best part, of the first best elements of all parts.
///
/// Needs:  decomposed ops, known sizes put in, split_rows().
/// Leaves: short columns, many results, reductions over more than one run of dimensions, an unknown number of columns side by
///         side, nodes that must not be fused, reductions that something of the operand's size is computed from, as in a
///         norm (one kernel does it all), unless columns are so few and long that most of a device would have nothing
///         to do; all of the CPU's.
ir::Graph split_columns(const ir::Graph& graph, const LowerOptions& options);

/// Replaces a reduction over several runs of dimensions, of few results, by one of each run, the last one first:
///
///   %s = reduce_sum(%x: f32[64, 32, 784]) {axes = [0, 2]}
///     ==>
///   %p = reduce_sum(%x) {axes = [2], keepdims = true}
///   %s = reduce_sum(%p) {axes = [0, 2]}
///
/// for split_rows() and split_columns() to take up. Leaves what split_columns() leaves, but for runs.
ir::Graph separate_runs(const ir::Graph& graph, const LowerOptions& options);

/// Replaces variances of such columns by what they decompose into, for split_columns() to take up.
ir::Graph decompose_column_variances(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
