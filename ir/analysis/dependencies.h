// What must run before what: strong edges carry data, weak ones only order.
//
//   read        strong, from the last writer of the storage (its node, before any mutation)
//   after(...)  weak
//   mutation    strong from the previous writer of the storage, weak from each reader since then
//   collective  weak from the one that begins before it
//
// Between two nodes there is one edge; a strong one wins over a weak one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

struct Dependency {
  std::uint32_t from = 0;  ///< position of a node in the graph
  bool weak = false;
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

/// Edges into each node of a graph, by position in graph.nodes().
class Dependencies {
 public:
  explicit Dependencies(std::size_t nodes) : edges_(nodes) {}

  std::size_t size() const { return edges_.size(); }
  /// Sorted by `from`, one a predecessor.
  std::span<const Dependency> into(std::uint32_t node) const { return edges_[node]; }
  /// Adds an edge; self edges are ignored.
  void add(std::uint32_t from, std::uint32_t to, bool weak);
  /// Whether a path leads from `from` to `to` (weak edges count).
  bool reaches(std::uint32_t from, std::uint32_t to) const;

 private:
  std::vector<std::vector<Dependency>> edges_;
};

Dependencies dependencies_of(const Graph& graph);

/// Positions in an order in which every edge leads forward; of the ready ones the first comes first, so
/// an order that is valid stays as it is.
/// @throws CycleError listing a shortest cycle by the names of `graph`.
std::vector<std::uint32_t> topological_order(const Graph& graph, const Dependencies& dependencies);

}  // namespace heddle::ir
