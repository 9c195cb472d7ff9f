// Turns "element of this value at this index" into statements: a load where the value is in memory, the
// producer's own expression where it is not.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "jit/lower/kernel_memory.h"
#include "jit/nest_builder.h"
#include "jit/program.h"

namespace heddle::jit {

/// Codes of BindStmt::check: one for each (what, where) of the program.
class CheckTable {
 public:
  std::int32_t code(std::string what, std::string where);
  std::vector<RuntimeCheck> take() { return std::move(checks_); }
  /// How often code() was called.
  std::size_t asked() const { return asked_; }

 private:
  std::size_t asked_ = 0;
  std::vector<RuntimeCheck> checks_;
};

class ElementEmitter {
 public:
  ElementEmitter(const LiveGraph& graph, NestBuilder& builder, KernelMemory& memory,
                 CheckTable& checks);

  /// Element of `value` at `index`. What was computed before, in this scope or an enclosing one, at the
  /// same index is not computed again.
  Scalar request(Value value, const Index& index);
  /// The same, read only where `mask` holds.
  Scalar request_masked(Value value, const Index& index, ScalarId mask);

  /// Scopes follow the blocks of the nest: what is computed inside is forgotten outside.
  void open_scope() { scopes_.emplace_back(); }
  void close_scope() { scopes_.pop_back(); }

  /// Asked first for every value that is not loaded: reductions, recipe results, staged values.
  std::function<std::optional<Scalar>(Value, const Index&)> override_value;

  NestBuilder& builder() { return builder_; }
  KernelMemory& memory() { return memory_; }
  /// Nodes whose elements were computed, in the order in which they were first wanted.
  const std::vector<const Node*>& computed() const { return computed_; }

 private:
  friend class NodeElements;
  struct Key {
    Value value;
    Index index;
    ScalarId guard = kNoScalar;
    std::int64_t extra = 0;  ///< tells constants and predicates apart
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };

  std::optional<Scalar> recall(const Key& key) const;
  Scalar remember(Key key, Scalar scalar);
  Scalar compute(Value value, const Index& index);
  Scalar load(Value storage, Value value, const Index& index);
  Scalar constant(DType dtype, double number, std::int64_t integer);
  Scalar index_scalar(const SymExpr& index);
  Scalar predicate(const base::Predicate& predicate);
  ScalarId guard() const { return guards_.empty() ? kNoScalar : guards_.back().id; }
  bool is_true(Scalar scalar) const { return true_.count(scalar.id) != 0; }
  bool is_false(Scalar scalar) const { return false_.count(scalar.id) != 0; }

  const LiveGraph& graph_;
  NestBuilder& builder_;
  KernelMemory& memory_;
  CheckTable& checks_;
  std::vector<std::unordered_map<Key, Scalar, KeyHash>> scopes_;
  std::vector<Scalar> guards_;       ///< of the guards that are open; no scalar: holds everywhere
  std::set<ScalarId> true_, false_;  ///< constants of dtype bool
  std::vector<const Node*> computed_;
  std::unordered_set<const Node*> is_computed_;
};

}  // namespace heddle::jit
