// The reference evaluator: slow, obvious, the oracle.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"

namespace heddle::ir {

/// Runs `graph` op by op on the host.
///
/// @param arguments  one for each non-parameter input, in order.
/// @param parameters values for parameters that the graph does not carry itself; may be empty.
/// @param known      sizes that a body shares with the graph around it.
///                   After reinplace, calls overwrite the bytes of operands, those of arguments too.
/// @return           outputs in order, then the values of write-backs in order.
/// @throws ShapeError when an argument does not fit its declared type; IndexError from ops.
std::vector<Literal> evaluate(const Graph& graph, std::span<const Literal> arguments,
                              std::span<const Literal> parameters = {},
                              const base::SymbolValues& known = {});

/// Values of the size symbols that the graph's inputs mention, from concrete argument sizes.
/// @throws ShapeError naming the input when sizes contradict each other.
base::SymbolValues bind_sizes(const Graph& graph, std::span<const Literal> arguments,
                              const base::SymbolValues& known = {});

}  // namespace heddle::ir
