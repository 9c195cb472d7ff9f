// A proof that a plan does what a graph does besides giving results, whatever its nodes are called by then.
#pragma once

#include "engine/unit.h"

namespace heddle::engine {

/// Proves that the steps of `unit`, those nested in it included, run as many calls of each op with effects as `graph`
/// has, in bodies nested the same way. The order among them is not looked at.
/// @throws InvariantError with a call that no step runs, or that runs more than once.
void check_effects(const ir::Graph& graph, const Unit& unit);

}  // namespace heddle::engine
