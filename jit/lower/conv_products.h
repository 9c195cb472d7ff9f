// Convolutions that are matrix products.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Makes products of convolutions whose kernel is one element and whose weights are the same in each run, for the CPU.
///
///   %y = conv(%x, %w: param f32[128, 256, 1, 1], %b) {channels_last = true, strides = [2, 2], …}
///     ==>
///   %s = clone(slice(%x) {stride = [1, 2, 2, 1], …})                 only where strides are not 1
///   %m = matmul(%s, permute(reshape(%w) {sizes = [128, 256]}))       [n, h, w, 128]
///   %y = add(%m, %b)
///
/// Their kernel fetches weights ahead of their use, and what follows is computed while a tile of the result lies in
/// the first-level cache: the library's took 1.4 times as long where weights come from memory (2048 to 512 channels at
/// 7 x 7), and as long where they do not.
///
/// Needs:  decomposed ops, known sizes put in; pack_weights after it.
/// Leaves: channels that do not fill whole panels, few of them, and what no library would compute.
ir::Graph convs_as_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
