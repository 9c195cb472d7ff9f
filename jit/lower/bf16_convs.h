// Convolutions that may round their operands to bf16, as such.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Whether convolutions of bf16 take less time than those of f32.
inline bool narrows_convs(const LowerOptions& options) {
  return options.amx || options.fast_bf16_dot;
}

/// Where they do, convolutions with the flag bf16 whose weights are the same in each run:
///
///   %y = conv(%x, %w, %bias) {bf16 = true, channels_last = true, …}
///     ==>
///   %p = panels [p, q, 64, 2] of convert(%w as [taps * c, m]) {dtype = bf16}
///   %y = add(packed_bf16_conv(convert(%x) {dtype = bf16}, %p) {columns = m, kernel = …, …}, %bias)
///
/// ResNet-50 takes 0.4 of the time so with matrices of bf16 (AMX; Xeon), and 0.7 with pairs (Zen 5).
///
/// Needs:  decomposed ops, known sizes put in.
/// Leaves: kernels of one element without padding, which are products (conv_products.h), few channels, and groups; of pairs what the
///         library computes in tiles of f32, which takes 0.6 to 0.8 of their time (64 to 512 channels, Zen 5).
ir::Graph bf16_convs(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
