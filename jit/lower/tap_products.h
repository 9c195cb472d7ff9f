// Convolutions to a few channels, as images and masks are made of features.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Makes one product of all taps of such a convolution, for the CPU: a column for each tap and channel of the result, of which those that
/// meet at a position are added up afterwards.
///
///   %y = conv(%x: f32[1, 112, 112, 64], %w: param f32[1, 64, 3, 3], %b) {channels_last = true, pads_low = [1, 1], …}
///     ==>
///   %m = matmul(%x, permute(%w) as [64, 9])                               [1, 112, 112, 9]
///   %p = pad(clone(permute(%m))) {low = [0, 0, 0, 1, 1], …}               [1, 9, 1, 114, 114]
///   %s = add(slice(%p) {start = [0, 0, 0, 0, 0]}, slice(%p) {start = [0, 1, 0, 0, 1]}, …)
///   %y = add(%s, %b)
///
/// Where x has its channels first already, rows of the product are the taps, and nothing is put in another order.
///
/// Lanes of vectors are channels of the result for the library, which leaves all but one of 8 or 16 of them empty here: 64 channels to 1 by 3 x 3
/// at 112 x 112 took it 4.5 ms, of which ONNX Runtime takes 3.6 (one thread of a Zen 3).
///
/// Needs:  decomposed ops, known sizes put in; convs_as_products and pack_weights after it.
/// Leaves: windows that move by more than one element, and those of more taps than x has channels, whose products would be larger than x.
ir::Graph tap_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
