// An order of dimensions for every value whose ops do not care about it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

/// Dimension k of what is reordered is dimension perm[k] of what was.
using Perm = std::vector<std::int64_t>;

Perm identity_perm(std::int64_t rank);
/// That of a permute, counted from the first dimension.
Perm perm_of(const Node& permute);
/// permute(permute(x, first), second) is permute(x, composed(first, second)).
Perm composed(const Perm& first, const Perm& second);
Perm inverse(const Perm& perm);
bool is_identity(const Perm& perm);
/// Whether reordering these dimensions by `perm` leaves every element where it is in row-major memory: only
/// dimensions of size 1 change places.
bool moves_nothing(std::span<const SymExpr> sizes, const Perm& perm);

/// Where a value read through permutes comes from: value = permute(root, through).
struct Source {
  Value root;
  Perm through;
};

/// Chooses an order of dimensions for groups of nodes, so that few permutes are left between them.
///
/// A group is a set of nodes with OpDef::reorder over operands of one rank and the same annotations, connected
/// by what they read from each other. Everything else (arguments, constants, other nodes, results) keeps the
/// order it has. Between two groups, or a group and the rest, a value needs a permute when their orders differ
/// but for dimensions of size 1. The cost of an assignment is the number of distinct permutes it needs, not
/// counting those of constants and parameters, which are reordered once, nor those that only a matmul reads
/// and that keep the contiguous dimension among its last two: it takes any strides. Groups in turn take the
/// order of least cost, if that is less than what they have, until none changes: the number of permutes
/// never grows. Where it is the same, a group that makes fewer bytes of what others compute, as of products that
/// are quantised, reads it as it lies: they are computed together, and permutes move what is narrow.
class Layouts {
 public:
  explicit Layouts(const Graph& graph);

  /// Whether any group has another order than its own.
  bool any_changed() const { return changed_; }
  bool is_member(const Node* node) const { return groups_.contains(node); }
  /// The order of the group of `node`; the identity for what is in no group.
  Perm order_of(const Node* node) const;
  /// The order in which `value` will lie in memory: its group's, or what is left of that by a reduction.
  Perm order_of(const Value& value) const;
  /// Whether anything reads `value` itself, in the order of its own dimensions.
  bool is_read_as_it_is(const Value& value) const { return plain_.contains(value); }
  /// Whether the caller sees the storage of `value`.
  bool is_visible(const Value& value) const { return visible_.contains(value.meta().storage); }
  /// `value` seen through the permutes above it that `reader` can do without.
  Source source_of(Value value, const Node& reader) const;
  /// The permute of a root's memory that gives permute(root, through) in the order `wanted`.
  Perm needed(const Source& source, const Perm& wanted) const;

 private:
  /// One reading of a value.
  struct Edge {
    Source source;
    std::int64_t rank = 0;
    std::int32_t reader = -1;  ///< group; -1: none
    bool absorbs = false;      ///< the reader takes strides
  };
  struct Group {
    Perm order;
    bool pinned = false;
    bool narrows = false;              ///< some node makes a value of fewer bytes
    std::vector<std::size_t> given{};  ///< readings of its values
    std::vector<std::size_t> read{};   ///< its readings of values of others
    std::vector<Value> narrow{};       ///< operands of smaller rank
  };

  /// Compared in this order.
  struct Cost {
    std::size_t permutes;
    std::size_t
        wide_results;  ///< readings through permutes of what other nodes compute and this group makes narrower
    auto operator<=>(const Cost&) const = default;
  };

  std::int32_t group_of(const Node* node) const;
  void form_groups(const Graph& graph);
  void join(const NodePtr& node, std::vector<std::int32_t>& parents);
  void pin_strided_results(const Graph& graph);
  void collect_edges(const Graph& graph);
  void add_edge(Value value, const Node& reader, std::int64_t rank);
  void link_edges();
  bool is_free(const Edge& edge, const Perm& perm) const;
  std::optional<Perm> permute_of(const Edge& edge) const;
  void count(std::size_t edge, int change);
  Cost cost(const Group& group) const;
  std::vector<Perm> candidates(const Group& group) const;
  bool improve(Group& group);

  std::set<StorageId> visible_;
  std::unordered_map<const Node*, std::int32_t> groups_;
  std::vector<Group> all_;
  std::vector<Edge> edges_;
  /// How many readings need each permute of a root, but for those of the group that is being improved.
  std::map<std::pair<Value, Perm>, int> readings_;
  std::set<Value> plain_;
  bool changed_ = false;
};

/// The largest rank among operands and result: that of the dimensions which OpDef::reorder moves.
std::int64_t widest_rank(const Node& node);

}  // namespace heddle::ir
