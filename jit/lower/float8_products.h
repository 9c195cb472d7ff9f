// Products by matrices that are stored as 8-bit floats.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Takes the scales of such matrices behind products, for the CPU, so that pack_weights keeps a byte for each weight and kernels widen
/// them as they read: a token is multiplied as fast as weights come from memory.
///
///   %w = mul(convert(%q: param f8e4m3fn[768, 3072]): f32, %s: param f32[3072])
///   %y = matmul(%x: f32[1, 768], %w)
///     ==>
///   %w = convert(%q): f32
///   %y = mul(matmul(%x, %w), %s)
///
/// Through a permutation as well, which is then that of the bytes.
///
/// Needs:  decomposed ops, known sizes put in; pack_weights after it.
/// Leaves: products in f16 and bf16, whose sums could be too large before they are scaled; scales that differ along the depth.
ir::Graph float8_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
