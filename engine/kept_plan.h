// Plans on disk: a later process that traces the same graph takes its kernels, steps and constants from there, and neither runs
// passes over it nor lowers it.
//
// A plan lies in the folder of the kernels (EngineOptions::cache_dir), under a key of all that it follows from: the graph as
// traced, with names, places in the source and the contents of its constants, or their places in a file that can be told from all others
// (jit::source_key); the options; the processor; and the sources of Heddle itself. It speaks of constants of the graph by their
// numbers, of those that folded steps made by their place in jit::ConstantCache, and holds the rest.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/fold.h"
#include "engine/unit.h"
#include "ir/graph.h"
#include "ir/literal.h"
#include "jit/program.h"

namespace heddle::engine {

class KeptPlan {
 public:
  /// What a Unit is made of.
  struct Parts {
    jit::Program program;  ///< with the traced graph in place of the one that its steps compute
    std::vector<ir::Literal> fixed;
    std::size_t folded_steps = 0;
  };

  /// The plan of `traced`, whether it is there or not. `traced` and what `options` point to outlive it.
  KeptPlan(const ir::Graph& traced, const BuildOptions& options);

  /// Nothing: it is not there, not whole, or its constants are not.
  std::optional<Parts> find() const;
  /// Keeps the plan of `unit` for later processes, if it is one that can be kept.
  void store(const Unit& unit) const;

 private:
  const ir::Graph& traced_;
  const BuildOptions& options_;
  std::string key_;  ///< empty: plans of this kind are not kept
};

}  // namespace heddle::engine
