// Which nodes become one kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "jit/lower/epilogue.h"

namespace heddle::jit {

/// Nodes that one kernel computes.
struct Group {
  enum class Kind : std::uint8_t {
    Pointwise,  ///< all iterate over the same elements
    Row,        ///< reductions over the same axes of one domain, what they read, what reads them
    Nest,       ///< a recipe and its epilogue
    Library,
    Region,
  };
  Kind kind = Kind::Pointwise;
  std::vector<const Node*> nodes;     ///< in graph order
  ir::Dims domain;                    ///< sizes of the iteration space
  std::vector<std::int64_t> reduced;  ///< Row: axes of the domain
  const Node* root =
      nullptr;  ///< Nest, Library, Region: the node with the recipe; Row: a reduction
  std::vector<EpilogueStep> epilogue;  ///< of a library call, whose last value is then its result

  /// What a library call stores.
  Value library_result() const {
    return epilogue.empty() ? root->value() : epilogue.back().nodes.back()->value();
  }
};

/// The groups in an order in which data and order edges point backwards.
struct Grouping {
  std::vector<Group> groups;
  std::vector<std::uint32_t>
      group_of;  ///< by node position; kNoGroup for inlined nodes and sources
  /// Order edges between groups that no data edge implies: (before, after).
  std::vector<std::pair<std::uint32_t, std::uint32_t>> weak_edges;
};

/// How a member of a row group relates to the group's domain.
enum class RowRole : std::uint8_t {
  None,    ///< not at all
  Full,    ///< an element of each (row, column)
  Row,     ///< an element of each row
  Reduce,  ///< a reduction of each row
};
RowRole row_role(const Group& group, const ReadAnalysis& reads, const Node* node);

/// Index of a member in terms of the group's domain axes `index`: by the same row-major position.
Index index_in(const ir::Dims& sizes, const ir::Dims& domain, const Index& index,
               const base::Facts& facts);

/// How a view, or on CUDA a copy of what views show, reads a member of the group in another order; null where it does not.
const Read* permuting_read(const Group& group, const LiveGraph& graph, const NodeReads& reads,
                           const Node* node);

/// Where a view that only permutes dimensions puts the element of `read.value` at index `point`: its own index
/// there. Nothing when it does anything else. On CUDA a dimension may be several of the view's, side by side, whose indices
/// have to be divided for.
/// @param facts  of the symbols in `point`
std::optional<Index> permuted_index(const NodeReads& reads, const Read& read, const Index& point,
                                    const base::Facts& facts, const LowerOptions& options);

Grouping form_groups(const ReadAnalysis& reads);

}  // namespace heddle::jit
