// Compile regions: which nodes a "compile" annotation marks, and how they are parted into acyclic units.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

/// What a "compile" annotation says. Nodes with equal marks are one pool; different ones never share a
/// compile unit, so neither do differently configured nodes.
struct RegionMark {
  std::string id;  ///< empty: the default pool
  Annotations options;

  friend bool operator==(const RegionMark&, const RegionMark&) = default;
};

/// The mark of an annotation map: {compile = true}, {compile = "id"} or
/// {compile = {id = "id", options = {…}}}. Nothing for {compile = false} and without the key.
/// @throws OptionError for a value of another kind, and for an unknown key of the map.
std::optional<RegionMark> region_mark(const Annotations& annotations, const base::Location& where);

/// Nodes that are compiled as one unit.
struct Region {
  RegionMark mark;
  std::vector<const Node*> nodes;  ///< in graph order
};

/// Whether a node may be in a region at all: inputs, parameters and constants never are.
bool may_be_marked(const Node& node);

/// Parts the marked nodes of `graph` into regions such that the graph of regions and unmarked nodes has no
/// cycle, over data and order edges and over all pools jointly, and such that no two regions of one pool
/// could still be merged. Adjacency does not matter: only a path that leaves and comes back splits a pool.
/// Deterministic; regions are in the order of their first nodes. Cost: as form_regions.
///
/// @param marks  by position in graph.nodes().
std::vector<Region> partition_regions(const Graph& graph,
                                      const std::vector<std::optional<RegionMark>>& marks);

}  // namespace heddle::ir
