// A compiled graph: guards, kernels, schedule and symbolic memory plan.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/bound.h"
#include "engine/guards.h"
#include "engine/outputs_in_place.h"
#include "engine/unit.h"
#include "heddle/engine.h"
#include "ir/passes/pipeline.h"

namespace heddle::engine {

/// A size of an output that is not known when a plan is bound.
inline constexpr std::int64_t kUnknownSize = -1;

/// An executable with sizes put in: what a context needs to run. Immutable.
struct BoundPlan : BoundSteps {
  std::shared_ptr<const class Executable> executable;
  std::uint64_t id = 0;             ///< unique in the process
  std::vector<std::int64_t> words;  ///< the packed descriptors it serves
  std::uint64_t hash = 0;
  std::vector<Sizes> output_sizes;     ///< kUnknownSize where only the run tells
  std::vector<std::int64_t> appended;  ///< Append::length of each in Executable::in_place
  std::int64_t arena_bytes = 0;
  std::int64_t scratch_stride = 0;
  /// Counted when EngineOptions::specialise_after asks for it.
  mutable std::atomic<int> calls{0};
};

struct OptimisedGraph;

/// What the plan calls a region: the id that its mark gives, else its name.
const std::string& id_of(const RegionInfo& region);

class Executable : public std::enable_shared_from_this<Executable> {
 public:
  /// Passes, lowering, scheduling, memory planning and compilation of a traced graph.
  /// @throws CompileError, UnsupportedError and what the passes throw.
  Executable(ir::Graph traced, Guards guards, const BuildOptions& options);

  const Guards& guards() const { return guards_; }
  const ir::Graph& traced() const { return traced_; }
  /// After all passes. Where the plan came from disk they are run when it is first asked for.
  const ir::Graph& optimised() const { return passed().graph; }
  const Unit& unit() const { return *unit_; }
  const jit::Program& program() const { return unit_->program(); }
  const scheduler::Schedule& schedule() const { return unit_->schedule(); }
  const memory::Planner& planner() const { return unit_->planner(); }
  std::span<const ir::PassRecord> passes() const { return passed().passes; }
  /// Whether the plan came from disk (engine/kept_plan.h).
  bool was_kept() const { return was_kept_; }
  /// Steps that were run once, when the executable was made: they read parameters and constants only.
  std::size_t folded_steps() const { return unit_->folded_steps(); }
  std::size_t distinct_kernels() const;
  /// Adds donated inputs that nothing can lie in.
  void count_missed_donations(EngineStats& stats) const;
  /// The compile units that annotations chose.
  std::span<const RegionInfo> regions() const { return regions_; }
  /// What the plan calls the region that kernels of the unit `unit` belong to; empty for those of none.
  std::string region_id(const std::string& unit) const;

  std::unique_ptr<BoundPlan> bind(const base::SymbolValues& sizes, int threads) const;

  /// The callable's own return value at its trace.
  std::shared_ptr<const void> prototype;
  /// The tensors that parameters of traced() stand for, before updates.
  std::map<ir::Value, Tensor> originals;
  base::SymbolValues hints;  ///< the sizes of its trace
  OutputsInPlace in_place;   ///< set before the first bind()
  bool is_exact = false;     ///< for just one combination of sizes, beside a general one
  /// Whether another with newer parameters has taken its place.
  mutable std::atomic<bool> superseded{false};

 private:
  /// What the passes made.
  struct Passed {
    ir::Graph graph;
    std::vector<ir::PassRecord> passes;
  };
  void compile(const BuildOptions& options);
  bool build(OptimisedGraph& graph, const BuildOptions& options);
  void note_fixed(std::span<const ir::Literal> fixed);
  const Passed& passed() const;

  Guards guards_;
  ir::Graph traced_;
  EngineOptions options_;
  bool was_kept_ = false;
  mutable std::once_flag passed_once_;
  mutable Passed passed_;
  std::vector<RegionInfo> regions_;
  std::map<std::string, std::string, std::less<>> region_of_copy_;  ///< OptimisedGraph::copies
  std::unique_ptr<Unit> unit_;
};

}  // namespace heddle::engine
