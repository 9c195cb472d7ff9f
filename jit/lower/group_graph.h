// The graph of groups while they are being merged.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "jit/lower/reads.h"

namespace heddle::jit {

/// Groups as sets of owned nodes with edges between them; answers whether a merge would make a cycle.
class GroupGraph {
 public:
  explicit GroupGraph(const ReadAnalysis& reads);

  std::uint32_t group_of(const Node* node) const;
  /// Owned nodes that compute something for `node`: itself, or for an inlined node those behind it.
  std::vector<const Node*> owners_behind(Value value) const;

  /// Whether some path leads from `from` to `to` through a third group.
  bool has_detour(std::uint32_t from, std::uint32_t to) const;
  /// Whether an order edge that no data edge implies lies between the two.
  bool is_ordered(std::uint32_t a, std::uint32_t b) const;
  bool has_edge(std::uint32_t from, std::uint32_t to) const { return next_[from].count(to) != 0; }
  /// Joins `b` into `a`.
  void merge(std::uint32_t a, std::uint32_t b);

  /// Groups in topological order, first nodes first where free.
  std::vector<std::uint32_t> order() const;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> weak_edges() const;

 private:
  void add_data_edges();
  void add_order_edges();
  void add_overwrite_edges();
  bool depends_on_data(const Node* node, const Node* before) const;
  std::uint32_t find(std::uint32_t k) const;

  const ReadAnalysis& reads_;
  const LiveGraph& graph_;
  std::vector<std::uint32_t> parent_;          ///< by node position: union-find
  std::vector<std::uint32_t> last_;            ///< by group: last node position
  std::vector<std::uint32_t> first_;           ///< by group: first node position
  std::vector<std::set<std::uint32_t>> next_;  ///< by group: groups that must run later
  std::vector<std::set<std::uint32_t>> before_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> weak_;  ///< node positions (before, after)
};

}  // namespace heddle::jit
