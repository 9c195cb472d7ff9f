// Numbers by which kernels that are alike but for them multiply.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Puts scales of quantised tensors, and learned numbers by which layers multiply or which they add, into memory, for the CPU, so
/// that layers share a kernel:
///
///   %y = mul(convert(%i), 0.0049000685)
///     ==>
///   %s = const {0.0049000685, 0}: f32[2]                        two numbers that differ are no part of a kernel
///   %y = mul(convert(%i), reshape(slice(%s) {limit = [1]}) {sizes = []})
///
/// Each layer of a quantised model has scales of its own, and else a kernel that differs in nothing but a number: of all-MiniLM in 8
/// bits 56 kernels are 25, of PP-OCRv4 recognition 61 are 47. What a scale is: no round number, and in the graph a few times at
/// most. Zero points of what is quantised are moved with them. Where nothing is quantised, several nodes must be alike but for
/// the number.
///
/// Needs:  decomposed ops; after all that look for constants.
/// Leaves: graphs with few such numbers; what a call of a library may take in; divisors, of whose reciprocals less is known where they
///         come from memory; nodes that must not be fused; all of CUDA's.
ir::Graph scales_in_memory(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
