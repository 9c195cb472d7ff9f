// What passes that change the operands of loops share.
#pragma once

#include <functional>
#include <unordered_set>

#include "ir/graph.h"

namespace heddle::ir {

/// Whether `node` is a loop whose nested graphs take its operands: scan and while_loop.
bool is_loop(const Node& node);
/// The first operand of a loop that is the same in each iteration.
std::size_t first_captured(const Node& loop);

/// Nodes of `graph` that its results and effects need, but for what only those in `known` read.
std::unordered_set<const Node*> live_nodes(const Graph& graph,
                                           const std::unordered_set<const Node*>& known = {});

/// `graph` with other inputs: `change` gets a builder that has its nodes, and adds inputs, orders them or drops unread ones.
/// @param kept  the nodes that stay beside the inputs; null: all
Graph with_inputs(const Graph& graph, const std::function<void(GraphBuilder&)>& change,
                  const std::unordered_set<const Node*>* kept = nullptr);

}  // namespace heddle::ir
