// Transposed convolutions as one convolution for each phase of their strides.
#pragma once

#include <optional>
#include <span>

#include "ir/graph.h"

namespace heddle::ir {

/// The result of `node`, for which is_transposed_conv() holds, with the channels in the last dimension as x has them; nothing
/// where one convolution for all phases (transposed_conv.h) is as good.
///
/// Element s * p + q of the result reads x[p + d - j] by tap s * j + r of the window, where s * d + r is q + low: phases differ in
/// how many taps they have where the stride does not divide the window. A convolution of all phases multiplies zeros
/// there; one of each multiplies what there is, 9 taps instead of 16 of windows of 3 x 3 that move by 2.
///
///   conv_transpose(%0: f32[n, c, h], %k: f32[c, m, 3]) {strides = [2], pads_low = [1], pads_high = [1], output_padding = [1]}
///     ==>
///   %a = conv(%x: f32[n, h, c], %k[:, :, 1]) {channels_last = true, …}            f32[n, h, m]
///   %b = conv(%x, reverse(%k[:, :, 0::2])) {channels_last = true, pads_high = [1], …}
///   %1 = reshape(concat(reshape(%a) {sizes = [n, h, 1, m]}, reshape(%b) {sizes = [n, h, 1, m]}) {axis = 2}) {sizes = [n, 2 * h, m]}
///
/// Phases that are alike share one. Needs one group, channels of the result that fill vectors, some work, and at most nine
/// convolutions that do at most 0.8 of it; 3 x 3 taps of all phases are left to Winograd's algorithm.
///
/// @param x         permuted: [n, in..., c]
/// @param operands  of the node, in the new graph
std::optional<Value> as_phases(GraphBuilder& builder, const Node& node, Value x,
                               std::span<const Value> operands);

}  // namespace heddle::ir
