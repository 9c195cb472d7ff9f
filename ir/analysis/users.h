// Who reads each value.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

/// One reading of a value: operand `operand` of `node`, or an entry of its after(...) list.
struct Use {
  const Node* node = nullptr;
  std::uint32_t operand = 0;
  bool order = false;  ///< after(...): keeps nothing alive
  friend bool operator==(const Use&, const Use&) = default;
};

class Users {
 public:
  /// Uses of `value` in node order; outputs and write-backs are not among them.
  std::span<const Use> of(const Value& value) const;
  /// Whether the graph returns `value` or writes it back.
  bool escapes(const Value& value) const;
  /// Whether anything but order depends on `value`.
  bool needed(const Value& value) const;

 private:
  friend Users users_of(const Graph& graph);
  std::map<Value, std::vector<Use>> uses_;
  std::map<Value, bool> escapes_;
};

/// Cost: linear in operands, times the logarithm of values.
Users users_of(const Graph& graph);

}  // namespace heddle::ir
