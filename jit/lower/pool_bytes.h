// Largest elements of windows over bytes.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Finds the largest byte of a window, not the largest number that bytes stand for: a quarter of the memory, and four times as many in a vector.
///
///   %x = mul(convert(sub(convert(%bytes), %zero)), 0.02)
///   %y = max_pool(%x) {kernel = [3, 3], …}
///     ==>
///   %m = max_pool(%bytes) {kernel = [3, 3], …}
///   %y = mul(convert(sub(convert(%m), %zero)), 0.02)
///
/// Needs:  decomposed ops.
/// Leaves: scales that are not known to be positive numbers, windows that may lie outside of x altogether, nodes that must not be fused, and
///         all of CUDA's as they are.
ir::Graph pool_bytes(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
