// Convolutions with the channels in the last dimension.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Gives convolutions of f32 their operand, and takes their result, with the channels in the last dimension.
///
///   %2 = conv(%0, %w) {strides = [1, 1], …}
///     ==>
///   %1 = permute(%0) {perm = [0, 2, 3, 1]}
///   %2 = conv(%1, %w) {channels_last = true, strides = [1, 1], …}
///   %3 = permute(%2) {perm = [0, 3, 1, 2]}
///
/// That is the order that libraries compute in; what they would reorder around each call becomes permutes that
/// meet and vanish. A value that several convolutions read is permuted once.
///
/// A transposed convolution whose windows lie side by side is a product that makes all taps as columns:
///
///   %1 = conv_transpose(%0: f32[n, c, h, w], %k: f32[c, m, 2, 2]) {strides = [2, 2], …}
///     ==>
///   %1 = matmul(permute(%0), reshape(permute(%k)))                                 f32[n, h, w, 4 * m]
///   %2 = permute(reshape(permute(reshape(%1) {sizes = [n, h, w, 2, 2, m]})))       f32[n, m, 2 * h, 2 * w]
///
/// Needs:   any verified graph; decompose first, so that other dtypes are converted.
/// Leaves:  no convolution of f32 in another order.
/// Order:   before push-permutes, which removes the permutes between them; left out where no library takes the
///          calls, as the engine does.
/// Cost:    linear in nodes.
Graph channels_last(const Graph& graph);

}  // namespace heddle::ir
