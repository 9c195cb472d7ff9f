// Resizes of several dimensions, one dimension after the other.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Replaces a linear or cubic resize of several dimensions by one of each, the last dimension first, on the CPU: of two
/// dimensions a cubic one then has 4 taps twice in place of 16.
///
///   %y = resize(%x: f32[1, 64, 64, 3]) {sizes = [1, 256, 256, 3], mode = "cubic"}
///     ==>
///   %0 = resize(%x) {sizes = [1, 64, 256, 3], mode = "cubic"}
///   %y = resize(%0) {sizes = [1, 256, 256, 3], mode = "cubic"}
///
/// The sums are those of one resize, in its order. Those of f16 and bf16 stay in f32 until the last.
///
/// Needs:  decomposed ops, known sizes put in.
/// Leaves: resizes whose results between would be much longer than the last one, or of unknown length, and nodes that must
///         not be fused as they are.
ir::Graph split_resizes(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
