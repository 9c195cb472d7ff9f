// Graphs: operations with edges, and their executable copies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/cuda_sim/machine.h"

namespace heddle::sim {

/// Nodes in the order in which they were added; their addresses are their handles.
struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;

  /// The place of the node of this handle; nodes.size() if there is none.
  std::size_t place_of(const void* handle) const;
  /// Whether each node comes after the one before it alone.
  bool is_chain() const;
};

/// A graph made ready. Each node has a slot of its own, so that work of its launches, which follow one
/// another, is told apart from all other work.
struct GraphExec {
  std::vector<GraphNode> nodes;
  std::map<const void*, std::size_t> places;  ///< by the handle of the graph's node
  std::vector<std::uint32_t> slots;
  std::shared_ptr<Firing> latest;  ///< the end of its last launch
};

/// The graphs that there are. Under mutex().
class Graphs {
 public:
  static Graphs& instance();

  Graph* make();
  Graph* find(void* handle);
  bool destroy(void* handle);
  GraphExec* instantiate(const Graph& graph);
  GraphExec* find_exec(void* handle);
  /// Runs its last launch to its end first.
  bool destroy_exec(void* handle);
  std::size_t live() const { return graphs_.size() + execs_.size(); }
  void reset();

  /// Of the edges that are given to nodes from now on, the n-th is left out. 0: none.
  void skip_edge(std::uint64_t n) {
    edges_ = 0;
    skip_edge_ = n;
  }
  std::uint64_t edges() const { return edges_; }
  /// Counts an edge. False: it is the one to leave out.
  bool keep_edge() { return ++edges_ != skip_edge_; }

 private:
  std::map<void*, std::unique_ptr<Graph>> graphs_;
  std::map<void*, std::unique_ptr<GraphExec>> execs_;
  std::uint64_t edges_ = 0;
  std::uint64_t skip_edge_ = 0;
};

}  // namespace heddle::sim
