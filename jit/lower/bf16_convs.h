// Convolutions that may round their operands to bf16, as such.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Where the CPU multiplies matrices of bf16 (AMX), convolutions with the flag bf16 whose weights are the same in each run:
///
///   %y = conv(%x, %w, %bias) {bf16 = true, channels_last = true, …}
///     ==>
///   %p = panels [p, q, 64, 2] of convert(%w as [taps * c, m]) {dtype = bf16}
///   %y = add(packed_bf16_conv(convert(%x) {dtype = bf16}, %p) {columns = m, kernel = …, …}, %bias)
///
/// ResNet-50 takes 0.4 of the time so (Xeon).
///
/// Needs:  decomposed ops, known sizes put in.
/// Leaves: kernels of one element without padding, which are products (conv_products.h), few channels, and groups.
ir::Graph bf16_convs(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
