// Common-subexpression elimination.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Merges nodes that compute the same: equal op, operands, attributes (1 is not 1.0), annotations and
/// order.
///
///   %1 = exp(%0)
///   %2 = exp(%0)
///   %3 = add(%1, %2)
///     ==>
///   %1 = exp(%0)
///   %3 = add(%1, %1)
///
/// Needs:   any verified graph.
/// Leaves:  no two equal pure nodes, but those whose storage an output shares, and those that define
///          sizes known only at run time.
/// Order:   after canonicalise.
/// Cost:    linear in nodes.
Graph cse(const Graph& graph);

}  // namespace heddle::ir
