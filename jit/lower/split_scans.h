// Running sums along few long rows or columns in parts, so that enough threads have work.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Replaces a running sum along a long dimension, where few others lie beside it, by those within parts of it and the sums of
/// the parts before, for CUDA.
///
///   %y = cumsum(%x: f32[4, 131072]) {axis = 1}
///     ==>
///   %r = reshape(%x) {sizes = [4, 32, 4096, 1]}
///   %b = cumsum(reduce_sum(%r) {axes = [2]}) {axis = 1, exclusive = true}
///   %y = reshape(cumsum(%r) {axis = 2} + reshape(%b) {sizes = [4, 32, 1, 1]}) {sizes = [4, 131072]}
///
/// Memory is read twice and written once, by three kernels. Columns, which a thread adds up each, have as many parts as make
/// threads that keep a large device's memory busy. Where parts of one size do not make up the dimension, it is padded with
/// zeros and the result cut off. Parts are the same on each device, and so are the results.
///
/// Needs:  decomposed ops, known sizes put in; before split_columns().
/// Leaves: short rows and columns, many of them, unknown lengths, tensors without elements, nodes that must not be fused; all
///         of the CPU's.
ir::Graph split_scans(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
