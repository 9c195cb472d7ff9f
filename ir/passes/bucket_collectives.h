// Collectives over several tensors as one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/analysis/collectives.h"
#include "ir/passes/control_deps.h"

namespace heddle::ir {

struct Bucketed {
  Graph graph;
  std::map<std::string, std::string> moved;  ///< node that is gone → node that does its work
};

/// Joins the collectives whose starts have the same annotation "bucket" into one over all elements: which is
/// the caller's promise that the collective treats elements one by one, as an all-reduce does. Those of different
/// compile regions are different buckets.
///
///   %s1 = dist::start(%x) @{bucket = "b"}
///   %w1 = dist::wait(%s1)
///   %s2 = dist::start(%y) @{bucket = "b"}
///   %w2 = dist::wait(%s2)
///     ==>
///   %v0 = reshape(%x) {sizes = [8]}
///   %v1 = reshape(%y) {sizes = [4]}
///   %v2 = concat(%v0, %v1) {axis = 0}
///   %b_start = dist::start(%v2) @{bucket = "b"}
///   %b_wait = dist::wait(%b_start)
///   %w1 = slice and reshape of %b_wait
///   %w2 = slice and reshape of %b_wait
///
/// Order edges of what is joined move to the new start and wait; never from a node to itself. What the caller sees of the
/// waits is a clone of its part.
///
/// Needs:   starts and waits with one operand and one result of its type; ops, attributes and dtypes alike.
/// Leaves:  one start and one wait a bucket.
/// Order:   before overlap-collectives; the views that it makes vanish in merge-views.
/// Cost:    n log n in nodes and edges.
/// @throws ArgumentError naming what does not fit into the bucket;
///         CycleError naming the nodes when one member needs what another one gives.
Bucketed join_buckets(const Graph& graph);
/// The graph alone; buckets in nested graphs are joined too, those of each on its own.
Graph bucket_collectives(const Graph& graph);

/// `deps` with the nodes that are gone replaced by those in `moved`, without edges from a node to itself.
ControlDeps move_deps(const ControlDeps& deps, const std::map<std::string, std::string>& moved);

}  // namespace heddle::ir
