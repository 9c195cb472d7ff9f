// Constant weights of f32 products in 16 bits.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Rounds the constant right matrices of f32 products to bf16. Off by default: results change.
///
///   %r = matmul(%x: f32[s0, 768], %w: param f32[768, 3072])
///     ==>
///   %v0 = convert(%w) {dtype = bf16}
///   %v1 = convert(%v0) {dtype = f32}
///   %r  = matmul(%x, %v1)
///
/// The lowering packs what was converted from 16 bits as it is, so that a product reads half the bytes; with few rows
/// that is what it waits for. The other operand, products and sums stay f32.
///
/// Error: a weight is off by at most 2^-9 of itself, so an element of the result by 2^-9 times the sum of |x| |w|, besides
/// what f32 sums are off.
///
/// Needs:   any verified graph.
/// Leaves:  no product of f32 and a matrix of f32 that is a constant or a parameter, or a view of one.
/// Order:   after all passes that fold constants; EngineOptions::passes runs it there.
/// Cost:    linear in nodes.
Graph bf16_weights(const Graph& graph);

}  // namespace heddle::ir
