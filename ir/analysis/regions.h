// Nodes that run nested graphs, and what those graphs see of the surrounding one.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

/// The nested graphs of `node`, in the order of its attributes' names; empty for plain nodes.
std::vector<const GraphRef*> regions_of(const Node& node);

/// The type of what a node gives that has no results, u8[0]: a token, so that order can name every node.
TensorMeta token_type();
/// Whether the one result of `node` is a token.
bool gives_token(const Node& node);
/// `results`, or where there are none a token.
std::vector<TensorMeta> or_token(std::vector<TensorMeta> results);

/// Whether running `node` has no effect but its results: its op is pure, and so is every node of its nested
/// graphs.
bool is_pure(const Node& node);
/// The same of every node of `graph`.
bool is_pure(const Graph& graph);

/// What the size symbols of `region` mean around it, when it is given `arguments`. A symbol that is the
/// size of an input is bound by the call; the others are those of the surrounding graph.
base::SymbolExprs region_sizes(const Graph& region, std::span<const TensorMeta> arguments);

/// Sizes that change between iterations of a loop with this body, which carries its first `carried` inputs: symbols of sizes that
/// only the run tells, given by an input, and what each is in the next iteration.
base::SymbolExprs changing_sizes(const Graph& body, std::size_t carried);

/// What each nested graph of `node` takes. HD_CHECKs that the node has nested graphs.
std::vector<TensorMeta> region_arguments(const Node& node);

/// `graph` with `change` applied to the nested graphs of branches, loops and calls, to the innermost first. A graph
/// that several nodes share stays shared. The same graph if `change` changed nothing.
Graph change_regions(const Graph& graph, Graph (*change)(const Graph&));

}  // namespace heddle::ir
