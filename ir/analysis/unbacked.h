// Sizes known only at run time.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

/// Unbacked symbols in the results of `node` that none of its operands mentions: the ones it defines.
/// Sorted.
std::vector<base::Symbol> unbacked_defined(const Node& node);

}  // namespace heddle::ir
