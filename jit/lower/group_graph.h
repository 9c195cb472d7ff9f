// The graph of groups while they are being merged.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/order_list.h"
#include "jit/lower/reads.h"

namespace heddle::jit {

/// Groups as sets of owned nodes with edges between them; answers whether a merge would make a cycle.
class GroupGraph {
 public:
  explicit GroupGraph(const ReadAnalysis& reads);

  std::uint32_t group_of(const Node* node) const;
  /// Owned nodes that compute something for `node`: itself, or for an inlined node those behind it.
  std::vector<const Node*> owners_behind(Value value) const;

  /// Whether an order edge between the two says more than data does. It does not where data leads to its later node from
  /// any node of the group that holds its earlier one: that group has run then anyway.
  bool is_ordered(std::uint32_t a, std::uint32_t b) const;
  /// Joins `b` into `a`, unless a path leads from one to the other through a third group.
  bool merge(std::uint32_t a, std::uint32_t b);

  /// Groups in topological order, first nodes first where free.
  std::vector<std::uint32_t> order() const;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> weak_edges() const;

 private:
  void add_data_edges();
  void add_order_edges();
  void add_collective_edges();
  void add_overwrite_edges();
  bool find_between(std::uint32_t first, std::uint32_t second);
  /// `only_data`: data from the very node is needed to make it say nothing.
  void add_weak(std::uint32_t before, std::uint32_t later, bool only_data = false);
  bool depends_on_data(const Node* node, const Node* before) const;
  bool depends_on_group(std::uint32_t node, std::uint32_t group) const;
  std::uint32_t find(std::uint32_t k) const;
  /// Begins a search: nothing has been seen.
  void forget() const { ++search_; }
  /// Whether `k` had not been seen in this search.
  bool see(std::uint32_t k) const { return std::exchange(seen_[k], search_) != search_; }

  const ReadAnalysis& reads_;
  const LiveGraph& graph_;
  mutable std::vector<std::uint32_t> parent_;  ///< by node position: union-find
  std::vector<std::uint32_t> last_;            ///< by group: last node position
  std::vector<std::set<std::uint32_t>> next_;  ///< by group: groups that must run later
  std::vector<std::set<std::uint32_t>> before_;
  struct WeakEdge {
    std::uint32_t before, later;  ///< node positions
    bool only_data;
  };
  std::vector<WeakEdge> weak_;
  /// By group: numbers of the weak edges to or from each other group.
  std::vector<std::map<std::uint32_t, std::vector<std::uint32_t>>> weak_of_;
  /// Of groups, so that edges lead forwards: a path between two runs through groups between them.
  base::OrderList topological_;
  std::vector<std::uint32_t> between_;       ///< what the last search found
  mutable std::vector<std::uint32_t> seen_;  ///< by node position: the last search that saw it
  mutable std::uint32_t search_ = 0;
};

}  // namespace heddle::jit
