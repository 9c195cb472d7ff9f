// Values that are the same in each run.
#pragma once

#include <unordered_map>

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Knows which nodes read parameters and constants only, through views and elements, so that kernels of them run once,
/// when a unit is built. Of one graph, which outlives it; each node is looked at once.
class FixedValues {
 public:
  explicit FixedValues(const LowerOptions& options) : options_(options) {}
  bool contains(const ir::Node* node);

 private:
  const LowerOptions& options_;
  std::unordered_map<const ir::Node*, bool> known_;
};

}  // namespace heddle::jit
