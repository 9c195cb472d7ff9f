// Products of f32 with operands rounded to tf32.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Lets f32 products and convolutions round their operands to tf32, which tensor cores of CUDA devices multiply. Off
/// by default: results change, on CUDA only.
///
///   %r = matmul(%x: f32[s0, 768], %w: f32[768, 3072])
///     ==>
///   %r = matmul(%x, %w) {tf32 = true}
///
/// A conv gets the same attribute.
///
/// Error: an operand is off by at most 2^-11 of itself, so an element of the result by little more than 2^-10 times
/// the sum of |x| |w|, besides what f32 sums are off.
///
/// Needs:   any verified graph.
/// Leaves:  no product of f32 that may not, but those with should_fallback.
/// Order:   any; after what makes products.
/// Cost:    linear in nodes.
Graph tf32_products(const Graph& graph);

}  // namespace heddle::ir
