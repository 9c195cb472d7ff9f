// Whether elements that an operand reads one after the other lie side by side.
#pragma once

#include <cstddef>

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Whether neighbours along dimension `axis` of `value` lie side by side in memory, whatever views lie between, or are computed.
bool lies_along(ir::Value value, std::size_t axis, const LowerOptions& options);

}  // namespace heddle::jit
