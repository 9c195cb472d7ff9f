// Evaluation of what is known at compile time.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Replaces a pure op on constants by its value, and an expensive one, a cosine, on what follows from positions.
///
///   %1 = const [1, 2, 3]: i64
///   %2 = mul(%1, 2: i64)
///     ==>
///   %2 = const [2, 4, 6]: i64
///
///   %1 = iota() {sizes = [4], axis = 0, dtype = f32}
///   %2 = add(%1, 1.0: f32)
///   %3 = exp2(%2)
///     ==>
///   %3 = const [2.0, 4.0, 8.0, 16.0]: f32
///
/// Positions and what is easily computed of them stay: they take no memory.
///
/// Parameters are not constants: what is computed from them alone runs once, compiled, when an executable
/// is made.
///
/// Needs:   static sizes of the results.
/// Leaves:  no pure op whose operands are all constants, or that is expensive and on what follows from constants and positions,
///          and whose results, like all that they follow from, have at most 4096 elements.
/// Order:   after decompose, before canonicalise.
/// Cost:    linear in nodes and folded elements.
Graph fold_constants(const Graph& graph);

}  // namespace heddle::ir
