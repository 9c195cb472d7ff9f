// Products by one column, or few of them, and of one column.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Replaces products by matrices of one column by sums over rows, for the CPU, and of up to four columns where sums are long; by fixed
/// matrices of f32 of some columns (pays_as_dot_conv) by convolutions of one element, to few channels (jit/nests/dot_conv.h).
///
///   %m = matmul(%x: f32[1024, 512], %v: f32[512, 1])
///     ==>
///   %r = reshape(%x) {sizes = [1024, 1, 512]}
///   %p = mul(%r, permute(%v) {perm = [1, 0]})                        [1024, 1, 512]
///   %m = reduce_sum(%p) {axes = [2]}
///
///   %m = matmul(%x: f32[1024, 512], %w: param f32[512, 3])
///     ==>
///   %f = clone(permute(reshape(%w) {sizes = [1, 512, 3]}) {perm = [2, 0, 1]})          [3, 1, 512], once
///   %m = conv(reshape(%x) {sizes = [1, 1024, 512]}, permute(%f) {perm = [0, 2, 1]})    [1, 1024, 3], of which %m is a view
///
/// A tile of a product is some tens of columns wide: of few columns it multiplies hardly more than one element at a time. Of a row
/// that lies in one piece whole vectors are multiplied, once for each column, and of one column it is read as fast as it comes from
/// the caches.
///
/// Products whose sums have one term are mul, which writes whole vectors of results, where vectors have not 64 bytes.
///
/// Needs:  decomposed ops, known sizes put in; before the passes that split long reductions.
/// Leaves: what does not lie along the sum (but of parameters, which are turned once), other dtypes than f32 and f64, products that
///         are rounded, short sums, nodes that must not be fused, all of CUDA's.
ir::Graph dot_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
