// Ops that are written with other ops.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Replaces an op that has a decomposition and no cheaper way to become code by its decomposition.
///
///   %1 = silu(%0)
///     ==>
///   %1 = sigmoid(%0)
///   %2 = mul(%0, %1)
///
/// Needs:   any verified graph.
/// Leaves:  no op that can only be decomposed. One with a view, element, reduction, nest or library
///          lowering stays; lowering decomposes it later if none of these applies.
/// Order:   first, so that the other passes see primitives.
/// Cost:    linear in nodes made.
Graph decompose(const Graph& graph);

}  // namespace heddle::ir
