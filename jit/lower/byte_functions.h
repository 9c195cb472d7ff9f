// Chains of operations on one byte.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Makes a byte that takes many operations on one other byte and constants, as an activation of quantised numbers is, an entry of
/// a table of 256 bytes, which is a constant of the graph: kernels whose tables alone differ are one.
///
///   %9 = convert(%8) {dtype = u8}         made of %1: u8 and constants by what follows %1
///     ==>
///   %9 = gather(%table, %1)
///
/// What a chain makes what it was, as what is quantised by the scale that it was dequantised by does, is that byte, and views between are
/// views of it.
///
/// Needs:  decomposed ops, known sizes put in; products of quantised tensors are made before it.
/// Leaves: chains that cost less than reading a table, nodes that must not be fused, and all of CUDA's as they are.
ir::Graph byte_functions(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
