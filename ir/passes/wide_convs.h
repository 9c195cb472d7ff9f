// Convolutions of narrow floats in f32.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Convolves f16 and bf16 as f32, which is what their sums are in anyhow, for libraries that have fast kernels for f32 only.
///
///   %2 = conv(%x: f16[1, 64, 56, 56], %w: f16[64, 64, 3, 3], %b: f16[64])
///     ==>
///   %2 = convert(conv(convert(%x), convert(%w), convert(%b)): f32[…]) {dtype = f16}
///
/// Needs:   any verified graph.
/// Leaves:  no convolution of f16 or bf16, transposed or not, but those with should_fallback.
/// Order:   before channels-last, which is for f32, and before constants are folded.
/// Cost:    linear in nodes.
Graph wide_convs(const Graph& graph);

}  // namespace heddle::ir
