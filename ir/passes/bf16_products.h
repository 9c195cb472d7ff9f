// Products of f32 with operands rounded to bf16.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Lets products of f32 round their operands to bf16, and those of f32 and bf16 take subnormal numbers for 0: what the
/// instruction of CPUs that multiplies pairs of bf16 does. Off by default: results change.
///
///   %r = matmul(%x: f32[s0, 768], %w: f32[768, 3072])
///   %s = matmul(%y: bf16[s0, 768], %v: bf16[768, 3072])
///     ==>
///   %r = matmul(%x, %w) {tf32 = true, bf16 = true}
///   %s = matmul(%y, %v) {bf16 = true}
///
/// The same of attention, whose weights of keys are rounded too, on CPUs that multiply pairs as often as f32.
///
/// On CPUs with that instruction (AVX512_BF16) it multiplies by constant matrices, whose panels are stored so; on CUDA f32
/// products round to tf32 instead, which is less; other products stay as they are.
///
/// Error: an operand is off by at most 2^-9 of itself, so an element of the result by little more than 2^-8 times
/// the sum of |x| |w|, besides what f32 sums are off. A weight of attention is off by as much of itself as a score is off, and 2^-9
/// more. Numbers below 2^-126 count as 0.
///
/// Needs:   any verified graph.
/// Leaves:  no product, convolution or attention of f32 or bf16 that may not, but those with should_fallback.
/// Order:   any; after what makes products.
/// Cost:    linear in nodes.
Graph bf16_products(const Graph& graph);

}  // namespace heddle::ir
