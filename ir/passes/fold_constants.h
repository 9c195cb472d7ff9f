// Evaluation of what is known at compile time.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Replaces a pure op on constants by its value.
///
///   %1 = const [1, 2, 3]: i64
///   %2 = mul(%1, 2: i64)
///     ==>
///   %2 = const [2, 4, 6]: i64
///
/// Parameters are not constants: what is computed from them alone runs once, compiled, when an executable
/// is made.
///
/// Needs:   static sizes of the results.
/// Leaves:  no pure op whose operands are all constants and whose results have at most 4096 elements.
/// Order:   after decompose, before canonicalise.
/// Cost:    linear in nodes and folded elements.
Graph fold_constants(const Graph& graph);

}  // namespace heddle::ir
