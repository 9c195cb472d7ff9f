// Kernels of the groups of one graph, each kind built once: the layers of a model are alike.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "jit/lower/kernel.h"

namespace heddle::jit {

/// Groups are alike when their nodes and those inlined into them correspond one to one, in the graph's order, with equal ops,
/// attributes, types and operands, and read and store the same values in memory. A kernel with checks, whose errors name
/// places in the graph, is one group's alone.
class KernelMemo {
 public:
  explicit KernelMemo(const LoweringState& state) : state_(state) {}

  using Build = BuiltKernel (*)(const LoweringState& state, std::uint32_t group);
  struct Job {
    std::uint32_t group;
    Build build;
  };
  /// Builds by LowerOptions::for_each what kernel() will be asked for, in this order: of groups that are alike the first. Those
  /// that have checks, which are numbered in order, or cannot be built are left to kernel().
  void build_ahead(const std::vector<Job>& jobs);

  /// What `build` makes of the group, or made of one that is alike, with this group's values.
  /// With LowerOptions::build_all it is built in any case and compared.
  BuiltKernel kernel(std::uint32_t group, Build build);

 private:
  struct Known {
    std::uint32_t group;
    BuiltKernel kernel;
  };
  std::uint64_t hash_of(const Group& group) const;
  std::optional<BuiltKernel> take_ahead(std::uint32_t group);

  const LoweringState& state_;
  std::unordered_map<std::uint64_t, std::vector<Known>> known_;  ///< by hash_of()
  std::unordered_map<std::uint32_t, BuiltKernel> ahead_;         ///< by group
};

}  // namespace heddle::jit
