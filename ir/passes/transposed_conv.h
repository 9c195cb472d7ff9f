// Transposed convolutions as convolutions whose channels are brought side by side.
#pragma once

#include <span>

#include "ir/graph.h"

namespace heddle::ir {

/// Whether `node` is a conv_transpose that as_convolution() takes: of f32, without dilation, with windows of known sizes.
bool is_transposed_conv(const Node& node);

/// The result of such a node, with the channels in the last dimension as x has them.
///
/// Along one dimension, element s * m + r - low of the result reads x[m - j] by tap s * j + r of the window, for each j that has
/// such a tap: for each of the s phases r the same elements of x. So a convolution makes the phases as channels of their
/// own, and there is no product that is left out. Windows that lie side by side have one j, which is a product of matrices.
///
///   conv_transpose(%0: f32[n, c, h], %k: f32[c, m, 4]) {strides = [2], pads_low = [1], pads_high = [1]}
///     ==>
///   %w = reshape(permute(reverse(reshape(%k) {sizes = [c, m, 2, 2]})))        f32[2 * m, c, 2]
///   %1 = conv(%x: f32[n, h, c], %w) {channels_last = true, pads = 1}          f32[n, h + 1, 2 * m]
///   %2 = slice(reshape(%1) {sizes = [n, 2 * h + 2, m]}) {start = 1}            f32[n, 2 * h, m]
///
/// @param x         permuted: [n, in..., c]
/// @param operands  of the node, in the new graph
Value as_convolution(GraphBuilder& builder, const Node& node, Value x,
                     std::span<const Value> operands);

}  // namespace heddle::ir
