// Computing while collectives are under way.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/passes/bucket_collectives.h"

namespace heddle::ir {

/// How far a start may move up, and a wait down.
struct OverlapLimits {
  std::int64_t max_bytes_in_flight = std::int64_t{1}
                                     << 30;  ///< results of starts not yet waited for
  /// By which the live bytes may grow in any place: the smaller of a number and a share of the peak.
  std::int64_t max_memory_increase = std::int64_t{1} << 30;
  double max_memory_increase_share = 0.1;
  std::size_t max_compute_distance = 16;  ///< computing nodes that a start or wait is moved across
  base::SymbolValues sizes{};             ///< for bytes; a size that is not among them counts as 1
};

/// What came of each collective.
struct Overlap {
  struct Hidden {
    Collective collective;
    const Node* compute = nullptr;  ///< runs between start and wait
  };
  std::vector<Hidden> hidden;
  std::vector<Collective> exposed;
};

/// Finds for each node that computes much (has a library kernel, or calls graphs with such a node and without
/// collectives) one collective to hide behind it: the first that neither needs it nor is needed by it, within the
/// limits. A start moves up only with what it needs, and that holds no other such node, no start that is not hidden
/// yet, and no wait that is exposed or hidden by the same node.
Overlap find_overlap(const Graph& graph, const OverlapLimits& limits = {});

/// Each hidden collective's order: the computing node after the start, the wait after the computing node.
ControlDeps overlap_deps(const Overlap& overlap);

/// `deps` without the edges between two collective nodes: their own stream orders these.
ControlDeps without_collective_pairs(const Graph& graph, const ControlDeps& deps);

/// Adds the order edges that hide collectives behind computing nodes; exposed ones get none.
///
///   %s = dist::start(%x)
///   %w = dist::wait(%s)
///   %m = matmul(%a, %b)
///     ==>
///   %s = dist::start(%x)
///   %m = matmul(%a, %b) after(%s)
///   %w = dist::wait(%s) after(%m)
///
/// In nested graphs the same, each on its own.
///
/// Needs:   nothing; any verified graph.
/// Leaves:  the same nodes, sorted.
/// Order:   the last pass before reinplace: order edges keep nodes from being fused. Not in the default pipeline.
/// Cost:    for each computing node a walk over what lies between it and the collectives near it.
Graph overlap_collectives(const Graph& graph);

}  // namespace heddle::ir
