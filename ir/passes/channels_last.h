// Convolutions with the channels in the last dimension.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Gives convolutions of f32 and i32 their operand, and takes their result, with the channels in the last dimension.
///
///   %2 = conv(%0, %w) {strides = [1, 1], …}
///     ==>
///   %1 = permute(%0) {perm = [0, 2, 3, 1]}
///   %2 = conv(%1, %w) {channels_last = true, strides = [1, 1], …}
///   %3 = permute(%2) {perm = [0, 3, 1, 2]}
///
/// That is the order that libraries compute in; what they would reorder around each call becomes permutes that
/// meet and vanish. A value that several convolutions read is permuted once. Those of i32 are what quantised models have, and are
/// made products of bytes with the channels last.
///
/// A transposed convolution becomes one of these, or a product (transposed_conv.h), or several (transposed_phases.h).
///
/// Needs:   any verified graph; decompose first, so that other dtypes are converted.
/// Leaves:  no convolution of f32 or i32 in another order.
/// Order:   before push-permutes, which removes the permutes between them; left out where no library takes the
///          calls, as the engine does.
/// Cost:    linear in nodes.
Graph channels_last(const Graph& graph);

}  // namespace heddle::ir
