// Convolutions that are matrix products.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Makes products of convolutions whose kernel is one element, and of those that are bound by reading their weights.
///
/// For the CPU, of those whose weights are the same in each run:
///
///   %y = conv(%x, %w: param f32[128, 256, 1, 1], %b) {channels_last = true, strides = [2, 2], …}
///     ==>
///   %s = clone(slice(%x) {stride = [1, 2, 2, 1], …})                 only where strides are not 1
///   %m = matmul(%s, permute(reshape(%w) {sizes = [128, 256]}))       [n, h, w, 128]
///   %y = add(%m, %b)
///
/// Their kernel fetches weights ahead of their use, and what follows is computed while a tile of the result lies in
/// the first-level cache: the library's took 1.4 times as long where weights come from memory (2048 to 512 channels at
/// 7 x 7), and as long where they do not. The same is worth putting windows behind each other (conv_windows.h) where kernels of
/// at most 9 elements have more weights than a second-level cache holds and at most 64 windows share them: 512 channels with
/// 3 x 3 at 7 x 7 took the library 1.9 ms, of which multiplying is 1.3. Windows of 3 x 3 that move by one element are left to its tiles of
/// Winograd's algorithm where 36 positions or more share the weights (0.63 of the product's time, 7 x 7 on Zen 5).
///
/// With vectors of 32 bytes and less, 16 channels to a multiple of 16 are enough: the library's result was written, and read and written
/// again by what follows it (16 to 32 channels at 400 x 304 with a hard swish took 2.8 times as long on Zen 3, 64 to 64 at 200 x 152 1.7). So they are
/// with wider ones where more follows than scales and shifts (16 to 64 channels with relu or a hard swish 0.68 to 0.96 of the time on Zen 5; with
/// nothing behind them as long, on a Xeon 1.05 to 1.5).
///
/// Where the sizes of the result are open, kernels of one element are products whatever their channels: oneDNN made code for
/// each size that came, a fifth of a millisecond for each convolution, and later calls took as long. So are kernels of several elements
/// of a row by all channels of x, windows of which lie in one piece: rows that overlap (conv_windows.h). The library made code for 1 to
/// 2.6 ms for each width (480 and 960 to 60 channels by 1 x 3), and later calls take as long. Those that it computes in tiles need no code of their own.
///
/// Convolutions of few channels to many, as images come, are no products: their weights are put in order for row_conv.h, which reads
/// x where it lies and makes no code for each size. The library's, which read a copy with the channels last, took 1.05 to 1.2 times as
/// long (3 to 16, 32, 64 and 96 channels by 3 x 3 and 4 x 4 at 112 to 448), and as long by 7 x 7; of one channel 1.2 to 2 times (to 128, 16 and 32 by 3 x 3 and
/// 5 x 5, Zen 5).
///
/// Filters of sound, of one channel in, read windows of at least 64 elements behind each other: rows of a product that overlap
/// where they lie (conv_windows.h). The library's take 3.9 times as long where 37 windows lie 441 apart (resampling), and as long
/// where 3001 lie 160 apart (a spectrum).
///
/// Where x has its channels first, all that read the result bring them there, and nothing is computed of that, neither is put in another
/// order: the product's rows are channels.
///
///   %l = permute(%x: f32[1, 64, 56, 56]) {perm = [0, 2, 3, 1]}
///   %y = conv(%l, %w: param f32[128, 64, 1, 1]) {channels_last = true, …}
///   %z = permute(%y) {perm = [0, 3, 1, 2]}
///     ==>
///   %m = matmul(reshape(%w) {sizes = [128, 64]}, reshape(%x) {sizes = [1, 64, 3136]})
///   %z = reshape(%m) {sizes = [1, 128, 56, 56]}
///
/// Weights are then no panels, which takes longer where few positions share them, so of 128 and more; and so are filters of sound
/// of few taps, whose windows are copied tap behind tap, as far as a second-level cache holds the copies.
///
/// For CUDA, of those of f32, f16 and bf16 that move by one element and have one group: a product for each image, whose
/// rows are channels, since these are what lies apart.
///
///   %y = conv(%x: f16[s0, 256, s1, s2], %w: f16[128, 256, 1, 1], %b)
///     ==>
///   %p = reshape(%x) {sizes = [s0, 256, s1*s2]}
///   %m = matmul(reshape(%w) {sizes = [128, 256]}, %p)                [s0, 128, s1*s2]
///   %y = add(reshape(%m) {sizes = [s0, 128, s1, s2]}, reshape(%b) {sizes = [128, 1, 1]})
///
/// Needs:  decomposed ops, known sizes put in; pack_weights after it.
/// Leaves: on the CPU channels that do not fill whole panels and few of them, of known sizes, and what no library would compute; on CUDA
///         windows that move or are padded, which are products of patches (jit/nests/conv.cpp).
ir::Graph convs_as_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
