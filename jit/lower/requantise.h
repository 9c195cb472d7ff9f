// Products of bytes that become bytes again.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Scales the sums of a product of bytes by what they are divided by for the next tensor, as its bytes are the only ones who want
/// them, so that nothing is divided:
///
///   %y = add(mul(convert(%sums: i32), %s), %bias)       and relu or bounds behind that, permutes, reshapes
///   %q = convert(clamp(add(round(div(%y, 0.02)), %zero), 0, 255)) {dtype = u8}
///     ==>
///   %z = add(mul(convert(%sums), %s / 0.02), %bias / 0.02)
///   %q = convert(clamp(add(round(%z), %zero), 0, 255)) {dtype = u8}
///
/// The sums are exact. The definition rounds the product of the scales, y and the quotient; this rounds both quotients and z.
///
/// Needs:  decomposed ops, products of bytes packed; scales are put into memory after it.
/// Leaves: what others read too, quotients that are not rounded, scales of x and divisors that are no constants or lie beyond 2^-60 to 2^60, nodes that
///         must not be fused, and all of CUDA's as they are.
ir::Graph requantise(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
