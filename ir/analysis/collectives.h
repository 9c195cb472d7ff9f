// Calls that talk to other processes: custom ops flagged `collective`.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

/// A collective in two nodes: one that starts it, and one that waits for it and gives the value. Both are calls
/// of custom ops flagged `collective`; the second reads a result of the first. What the first still reads
/// while it is under way must be an operand of the second.
struct Collective {
  const Node* start = nullptr;
  const Node* wait = nullptr;
};

/// Whether `node` starts a collective, waits for one, or is one.
bool is_collective(const Node& node);

/// In the order of the starts. A collective call that nothing waits for, or more than one, is none of them.
std::vector<Collective> collectives_of(const Graph& graph);

/// All collective calls but waits. They begin in this order, which is that of the nodes, in every process: or
/// one process would wait for what another has not begun.
std::vector<const Node*> begun_collectives(const Graph& graph);

}  // namespace heddle::ir
