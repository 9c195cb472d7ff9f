// Rewrites composite ops into ops that have code.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// How a node becomes code.
enum class NodeClass : std::uint8_t {
  Source,     ///< input, param, const: in memory before anything runs
  View,       ///< an index map of its operand
  Element,    ///< one scalar expression an element
  Reduce,     ///< a reduction over axes
  Nest,       ///< a loop nest of its own
  Library,    ///< a library kernel
  Region,     ///< nested graphs, each with kernels of its own
  Composite,  ///< none of these: has to be decomposed
};

/// The first way that applies: library (when wanted or better), view, element, reduce, nest, decompose.
/// @throws UnsupportedError naming an op that has no way, or a fallback without a library kernel.
NodeClass classify(const ir::Node& node, const LowerOptions& options);

/// Whether two nodes may share a kernel: of one compile unit and, where there are streams, pinned alike.
bool same_unit(const ir::Node& a, const ir::Node& b, const LowerOptions& options);

/// Replaces composite nodes by what they decompose into, until none is left.
///
///   %y = softmax(%x) {axis = 1}
///     ==>
///   %m = reduce_max(%x) {axes = [1], keepdims = true} …
///
/// Needs:  a verified graph.
/// Leaves: no node that classify() calls Composite. `after` edges of a replaced node are carried by all
///         nodes it became; its annotations too.
ir::Graph decompose_all(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
