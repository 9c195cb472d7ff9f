// Which values share bytes.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

/// Values grouped by storage: a view is in the group of what it views, so a group is closed under
/// aliasing.
class AliasSets {
 public:
  /// All values that share storage with `value`, itself included, in node order.
  std::span<const Value> closure(const Value& value) const;
  /// Whether the caller sees the bytes of `value`: an input, output or write-back shares them.
  bool is_input(const Value& value) const;
  bool is_output(const Value& value) const;
  const std::map<StorageId, std::vector<Value>>& groups() const { return groups_; }

 private:
  friend AliasSets alias_sets(const Graph& graph);
  std::map<StorageId, std::vector<Value>> groups_;
  std::map<StorageId, bool> inputs_;
  std::map<StorageId, bool> outputs_;
};

AliasSets alias_sets(const Graph& graph);

/// The operand that `value` is a view of; null when it owns its elements.
Value viewed(const Value& value);

/// The value that owns the memory of `value` when that is the whole of it in row-major order: itself, what it
/// is a reshape of, what was overwritten with it. Null for parts, and for other orders.
Value whole_base(Value value);

}  // namespace heddle::ir
