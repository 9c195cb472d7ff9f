// What is equal for graphs that do the same.
#pragma once

#include <optional>

#include "base/hash.h"
#include "ir/graph.h"

namespace heddle::ir {

/// Everything about a graph but names and locations.
///
/// @param late  numbers that sizes which only the run tells have in the key, by what they are in the graph; those that
///              the graph defines join them. Without a map they are what they are.
base::Hash128 structural_key(const Graph& graph, std::optional<base::SymbolExprs> late);

/// Equal too for graphs that differ in the numbers of the sizes which they find at run time.
inline base::Hash128 body_key(const Graph& graph) {
  return structural_key(graph, base::SymbolExprs());
}

}  // namespace heddle::ir
