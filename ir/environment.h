// What a graph was inferred with.
#pragma once

#include <memory>

#include "ir/graph.h"

namespace heddle::ir {

/// An environment in which nodes of `graph` are inferred as they were: it knows what the graph assumes and nothing else, and numbers new
/// sizes that only the run tells behind those of the graph.
std::shared_ptr<ShapeEnv> environment_of(const Graph& graph);

}  // namespace heddle::ir
