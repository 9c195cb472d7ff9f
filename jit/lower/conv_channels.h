// Convolutions whose windows are read along their channels.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Puts the channels of what convolutions multiply on tensor cores inside of all other dimensions, for CUDA, so that windows are
/// read 16 bytes at a time:
///
///   %y = conv(%x: f16[s0, 64, s1, s2], %w: param f16[128, 64, 3, 3])
///     ==>
///   %l = clone(permute(%x) {perm = [0, 2, 3, 1]})
///   %f = clone(permute(%w) {perm = [0, 2, 3, 1]})
///   %y = conv(permute(%l) {perm = [0, 3, 1, 2]}, permute(%f) {perm = [0, 3, 1, 2]})
///
/// and of convolutions of each channel by itself, channels last, the weights' channels, so that those of neighbouring threads lie
/// side by side:
///
///   %y = conv(%x: f16[s0, s1, s2, 64], %w: param f16[64, 1, 3, 3]) {groups = 64, channels_last = true}
///     ==>
///   %f = clone(permute(%w) {perm = [1, 2, 3, 0]})
///   %y = conv(%x, permute(%f) {perm = [3, 0, 1, 2]}) {groups = 64, channels_last = true}
///
/// The result stays what it is. An element of x is in as many windows as there are taps, and as one of two bytes by itself it costs
/// a thread several instructions each time; turning x reads and writes it once. Weights are the same in each run, so that
/// they are turned once. Of x that lies so already, only the weights are.
///
/// Needs:  decomposed ops, known sizes put in; convs_as_products() before it, whose products read x as it lies.
/// Leaves: f32 that must not be rounded, channels that do not fill 16 bytes, convolutions that are no products (few channels
///         out, many taps), weights that differ from run to run, nodes that must not be fused; all of the CPU's.
ir::Graph conv_channels(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
