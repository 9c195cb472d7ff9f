// The part of a graph that computes its results, as lowering sees it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "jit/lower/decompose.h"
#include "jit/lower/index.h"

namespace heddle::jit {

using ir::Node;
using ir::Value;

/// Nodes that outputs, write-backs, overwritten arguments or impure nodes need, in the graph's order, with their classes.
class LiveGraph {
 public:
  /// `graph` holds no composite nodes; it must outlive this.
  LiveGraph(const ir::Graph& graph, const LowerOptions& options);

  const ir::Graph& graph() const { return graph_; }
  const LowerOptions& options() const { return options_; }
  std::span<const Node* const> nodes() const { return nodes_; }
  bool is_live(const Node* node) const { return positions_.count(node) != 0; }
  /// Index in nodes().
  std::uint32_t position(const Node* node) const { return positions_.at(node); }
  NodeClass class_of(const Node* node) const { return classes_[position(node)]; }

  /// The value whose memory holds `value` in row-major order too: itself, or what it is a relabelling of.
  Value storage(Value value) const;
  /// Whether the memory of `storage` has strides of its own: only arguments have. What kernels store is
  /// row-major, whatever strides the metadata of a view names.
  bool is_strided(Value storage) const {
    return class_of(storage.node) == NodeClass::Source && !storage.meta().is_row_major();
  }
  /// Whether the view node relabels its operand without moving an element.
  bool is_relabelling(const Node* view) const { return relabels_[position(view)]; }

  /// The value that `value` is a view of, through all views.
  Value viewed(Value value) const;
  /// For each node that overwrites an operand: the nodes above it that read the same memory, by position. All
  /// but views, which read nothing themselves.
  struct Overwrite {
    std::uint32_t writer = 0;
    std::vector<std::uint32_t> readers;
  };
  std::vector<Overwrite> overwrites() const;

  /// Values that graph outputs and write-backs read, by storage; they must be in memory.
  std::span<const Value> results() const { return results_; }

  /// Axes that a reduce node reduces over, ascending.
  std::vector<std::int64_t> reduced_axes(const Node* node) const;

 private:
  bool relabels(const Node* node) const;

  const ir::Graph& graph_;
  const LowerOptions& options_;
  std::vector<const Node*> nodes_;
  std::vector<NodeClass> classes_;
  std::vector<bool> relabels_;
  std::unordered_map<const Node*, std::uint32_t> positions_;
  std::vector<Value> results_;
};

/// The constant that a const node of one element, or of equal elements, holds everywhere.
struct Splat {
  double number = 0;
  std::int64_t integer = 0;
};
std::optional<Splat> splat_of(const Node& node);

}  // namespace heddle::jit
