// Convolutions whose weights lie in panels.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Packs the weights of convolutions that are the same in each run into panels, for CPUs whose vectors have 32 bytes or fewer, and
/// of those with more than 15 elements of padding along a row for all.
///
///   %y = conv(%x: f32[1, 56, 56, 64], %w: param f32[128, 64, 3, 3], %b) {channels_last = true, strides = [2, 2], …}
///     ==>
///   %q = pad(%x, 0.0) {low = [0, 1, 1, 0], …}                       only where there is padding
///   %p = clone(…)                                                  panels of %w: [1, 2, 576, 64]
///   %c = packed_conv(%q, %p) {columns = 128, kernel = [3, 3], strides = [2, 2], dilations = [1, 1]}
///   %y = add(%c, %b)
///
/// With AVX2 the library's kernels know padding up to the width of their blocks, and groups whose channels fill vectors: others it
/// computes by way of a copy of all windows, which takes 1.2 to 6 times as long as blocks of 6 rows by 2 vectors that read windows
/// in place (256 channels with 3 taps 4 apart, 16 groups of 48 channels with 128 taps). A call of few products takes longer to
/// begin than to compute: 18 us of 8 channels by 3 x 3 at 7 x 7, which take 7. Of windows with gaps, an even number of taps or wide steps the library's
/// take longer where many elements lie behind each other: 0.79 of the cycles of 256 channels by 3 x 3 two apart at 28 x 28, 0.76 of 64 to 128
/// channels by 2 x 2 side by side at 56 x 56, 0.77 of 128 to 256 by 3 x 3 in steps of two at 20 x 20; others take as long, few
/// channels 1.1 to 1.4 times (Zen 3). With AVX-512 the library is slow at much padding alone: 8 to 64 channels by 1 x 39 takes 0.47 to
/// 0.73 of its time, of one to three channels 0.2 to 0.45 (Xeon); with 15 or less it takes as long.
///
/// Needs:  decomposed ops, known sizes put in; convs_as_products() before it, whose products read more at a time.
/// Leaves: what the library has kernels for, few channels a group, kernels of one element, open weights, and all of CUDA's.
ir::Graph packed_convs(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
