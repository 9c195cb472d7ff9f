// The text form of a graph reads back as the same text.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace heddle::testing {

/// parse(print(graph)) prints the same text, with and without types, and has the same structure.
void expect_round_trip(const ir::Graph& graph);
/// `text` parses and prints as itself.
ir::Graph expect_canonical(std::string_view text);

}  // namespace heddle::testing
