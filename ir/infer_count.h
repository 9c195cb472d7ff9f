// How much metadata is inferred, for those who must not infer what is known.
#pragma once

#include <cstdint>

namespace heddle::ir {

/// Nodes whose metadata builders have inferred on this thread so far; those that they share or copy are none.
std::uint64_t inferred_nodes();

}  // namespace heddle::ir
