// Where values are, as one kernel sees them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "jit/lower/live_graph.h"
#include "jit/nest_builder.h"

namespace heddle::jit {

inline constexpr std::uint32_t kNoGroup = 0xffffffffu;

/// Which group computes each value that is kept in memory. Values are storages (LiveGraph::storage).
class Placement {
 public:
  explicit Placement(const LiveGraph& graph) : graph_(graph) {}
  void place(Value storage, std::uint32_t group) { groups_[storage] = group; }
  bool in_memory(Value storage) const {
    return graph_.class_of(storage.node) == NodeClass::Source || groups_.count(storage) != 0;
  }
  /// The group that stores it; kNoGroup for inputs, parameters and constants.
  std::uint32_t group_of(Value storage) const {
    const auto found = groups_.find(storage);
    return found == groups_.end() ? kNoGroup : found->second;
  }

 private:
  const LiveGraph& graph_;
  std::map<Value, std::uint32_t> groups_;
};

/// The global buffers of one kernel.
class KernelMemory {
 public:
  KernelMemory(const LiveGraph& graph, const Placement& placement, std::uint32_t group,
               NestBuilder& builder)
      : graph_(graph), placement_(placement), group_(group), builder_(builder) {}

  /// Whether this kernel reads `storage` from memory instead of computing it.
  bool is_loaded(Value storage) const {
    return placement_.in_memory(storage) && placement_.group_of(storage) != group_;
  }
  /// Whether this kernel computes `storage` and must store it.
  bool is_stored(Value storage) const {
    return placement_.in_memory(storage) && placement_.group_of(storage) == group_ &&
           group_ != kNoGroup;
  }
  /// Makes the buffers of everything that computing `value` may load.
  void add_loads(Value value);
  /// The buffer of `storage`; made on first use.
  NestBufferId buffer(Value storage);
  /// Values by buffer id.
  const std::vector<Value>& values() const { return values_; }

 private:
  const LiveGraph& graph_;
  const Placement& placement_;
  const std::uint32_t group_;
  NestBuilder& builder_;
  std::map<Value, NestBufferId> buffers_;
  std::vector<Value> values_;
  std::map<Value, bool> visited_;
};

}  // namespace heddle::jit
