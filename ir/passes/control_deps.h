// Order edges by name.
#pragma once

#include <map>
#include <set>
#include <string>

#include "ir/graph.h"

namespace heddle::ir {

/// Node (by the name of any of its results, without '%') → the nodes that must run before it.
using ControlDeps = std::map<std::string, std::set<std::string>>;

/// Adds order edges; sorts the nodes where one has to move below what it waits for, and only these.
///
///   %a = add(%x, %y)                        {"m": {"a"}}
///   %m = matmul(%w, %w)
///     ==>
///   %a = add(%x, %y)
///   %m = matmul(%w, %w) after(%a)
///
/// Needs:   a verified graph. Names are those of its top level.
/// Leaves:  the same nodes under the same names. The same graph when there is nothing to add.
/// Order:   anywhere; the passes keep order edges between the nodes that they leave.
/// Cost:    n log n in nodes and edges.
/// @throws ArgumentError naming what is no node of the graph, or waits although it is an input;
///         CycleError naming the nodes that would wait for each other.
Graph control_deps(const Graph& graph, const ControlDeps& deps);

}  // namespace heddle::ir
