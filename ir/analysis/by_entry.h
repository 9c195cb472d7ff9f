// Which nodes and steps treat the entries of a batch apart: entry k of what they make follows from entry k of what they read, and from
// what is no part of the batch, in the way in which a batch of one entry would be computed.
//
// A tensor holds the entries of a batch of s0 if one of its dimensions, and no other, mentions s0, as [s0, 3, 224, 224] or
// [64*s0, 49, 96]: entry k has the elements of a k-th part of that dimension.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "ir/graph.h"
#include "ir/schedule.h"

namespace heddle::ir {

/// The dimension along which a tensor holds the entries of a batch, and its length for one of them.
struct BatchDimension {
  std::size_t dimension = 0;
  SymExpr of_entry;
};

/// Proves of nodes that they treat the entries of one batch apart.
class ByEntry {
 public:
  explicit ByEntry(base::Symbol batch) : batch_(batch) {}

  /// Whether results and operands that mention the batch hold its entries, and the node treats them apart; a node that has to do with no
  /// batch does. False where it is not known.
  bool holds(const Node& node);
  /// Nothing where `sizes` do not mention the batch, or do in another way.
  std::optional<BatchDimension> dimension(const Dims& sizes) const;
  bool mentions(const Dims& sizes) const;

 private:
  bool find(const Node& node) const;
  bool holds_entries(const Node& node) const;

  base::Symbol batch_;
  std::map<const Node*, bool> known_;
};

/// Finds the batch that most steps treat apart, among the leading sizes of the arguments, and sets ScheduleRecord::batch and
/// PlanStep::by_entry: of steps all of whose buffers that mention the batch hold its entries one behind the other, and that no weak edge
/// orders.
void find_batch(const Graph& graph, ScheduleRecord& record);

}  // namespace heddle::ir
