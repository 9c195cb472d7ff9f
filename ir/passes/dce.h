// Dead-code elimination.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Removes pure nodes that no output, write-back or impure node needs, for its elements or for a size that
/// only the run tells. An order edge is not a need: it is pruned with the node it leads from.
///
///   %1 = exp(%0)
///   %2 = neg(%0) after(%1)
///   return %2
///     ==>
///   %2 = neg(%0)
///   return %2
///
/// Needs:   any verified graph.
/// Leaves:  every node but inputs and parameters reachable from an output through data, or impure.
/// Order:   any; last of the functional passes.
/// Cost:    linear in nodes.
Graph dce(const Graph& graph);

}  // namespace heddle::ir
