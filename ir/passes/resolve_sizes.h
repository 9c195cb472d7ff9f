// Sizes that are known by what the graph assumes.
#pragma once

#include <span>

#include "ir/graph.h"

namespace heddle::ir {

/// Puts what assumed equalities say about sizes into the graph, and drops those assumptions.
///
///   graph @main(%x: f32[s0, 4], %y: f32[s1, s2]) {
///     assume s1 == 1
///     assume s2 == 4
///     %a = add(%x, %y)
///     ==>
///   graph @main(%x: f32[s0, 4], %y: f32[1, 4]) {
///     %a = add(%x, %y)
///
/// Needs:   any verified graph. Who calls the graph still has to check what was assumed.
/// Leaves:  no size symbol that an assumption gives away: what is broadcast has size 1.
/// Order:   before the pipeline and before form-regions, whose bodies speak of the same symbols. Lowering
///          does it again, since nests are wrong for a broadcast that they cannot see.
/// Cost:    linear in nodes, all of which are inferred anew; nothing without an equality.
Graph resolve_sizes(const Graph& graph);

/// `graph`, with the same nodes, that assumes more.
Graph assuming(const Graph& graph, std::span<const Assumption> more);

}  // namespace heddle::ir
