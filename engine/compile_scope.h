// From a traced graph to one that lowering takes: regions formed, each through its own passes, put together
// again.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/engine.h"
#include "ir/graph.h"
#include "ir/passes/pipeline.h"
#include "jit/program.h"

namespace heddle::engine {

struct OptimisedGraph {
  ir::Graph graph;
  std::vector<RegionInfo> regions;
  std::vector<ir::PassRecord> passes;
  /// How each region, and what is outside of all, is lowered.
  std::map<std::string, jit::UnitOptions, std::less<>> units;
  jit::UnitOptions rest;
  /// Names of regions that may run op by op when they cannot be compiled.
  std::vector<std::string> may_fall_back;
  /// Further calls of a region, where what holds it was put in several places: their names in `units`, and
  /// that of the region in `regions`.
  std::map<std::string, std::string, std::less<>> copies;

  /// The region that a kernel of the unit `name` belongs to.
  const std::string& region_of(const std::string& name) const {
    const auto copy = copies.find(name);
    return copy == copies.end() ? name : copy->second;
  }
};

/// @throws OptionError naming an unknown option of a mark, before any pass has run; what the hook
///         EngineOptions::on_region_compile throws, unless that region may fall back.
OptimisedGraph optimise(const ir::Graph& traced, const EngineOptions& options);

/// HEDDLE_WINOGRAD=0 keeps library convolutions to the direct algorithm.
bool may_use_winograd();

/// Gives `line` to EngineOptions::log, else to standard error.
void log_line(const EngineOptions& options, const std::string& line);

/// Says once that `region` runs op by op and why: to EngineOptions::log, else to standard error.
void log_fallback(const EngineOptions& options, const RegionInfo& region, std::string_view why);

}  // namespace heddle::engine
