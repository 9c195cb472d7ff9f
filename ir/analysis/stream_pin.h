// Nodes that the user gives to a stream.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace heddle::ir {

/// The stream that the annotation "stream" pins `node` to; nothing without it.
/// @throws OptionError naming the node when it is no number >= 0.
std::optional<std::uint32_t> pinned_stream(const Node& node);

}  // namespace heddle::ir
