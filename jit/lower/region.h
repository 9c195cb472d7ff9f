// Nodes with nested graphs.
#pragma once

#include <cstdint>
#include <memory>

#include "jit/lower/kernel.h"
#include "jit/program.h"

namespace heddle::jit {

/// lower() with codes of runtime checks that the programs of nested graphs share.
Program lower_graph(const ir::Graph& graph, const LowerOptions& options, CheckTable& checks);

/// The nested graphs of `node`, lowered. `step`: its number, unique in its program.
/// @throws UnsupportedError when a size of a result is known only at run time.
std::shared_ptr<const NestedCall> lower_regions(const Node& node, const LoweringState& state,
                                                std::uint32_t step);

}  // namespace heddle::jit
