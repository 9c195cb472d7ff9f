// A compiled graph: guards, kernels, schedule and symbolic memory plan.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/guards.h"
#include "heddle/engine.h"
#include "ir/passes/pipeline.h"
#include "jit/compile_service.h"
#include "jit/custom/custom_call.h"
#include "jit/library.h"
#include "jit/program.h"
#include "memory/planner.h"
#include "scheduler/executor.h"
#include "scheduler/order.h"

namespace heddle::engine {

/// Where the address of a kernel argument comes from.
struct AddressSource {
  enum class Kind : std::uint8_t { Arena, Input, Output, Fixed };
  Kind kind = Kind::Arena;
  std::int64_t offset = 0;     ///< Arena: bytes
  std::uint32_t position = 0;  ///< Input, Output: which
  void* address = nullptr;     ///< Fixed: parameters and constants
};

/// An executable with sizes put in: what a context needs to run. Immutable.
struct BoundPlan {
  std::shared_ptr<const class Executable> executable;
  std::uint64_t id = 0;             ///< unique in the process
  std::vector<std::int64_t> words;  ///< the packed descriptors it serves
  std::uint64_t hash = 0;
  std::vector<AddressSource> table;        ///< of all steps, one after another
  std::vector<std::uint32_t> table_start;  ///< of each step
  std::vector<std::vector<std::int64_t>> step_sizes;
  std::vector<std::unique_ptr<jit::BoundLibraryCall>> library;  ///< by step, null for kernels
  std::vector<std::unique_ptr<jit::BoundCustomCall>> custom;    ///< by step, null for others
  std::vector<scheduler::BoundStep> steps;                      ///< without addresses
  std::vector<scheduler::BoundStage> stages;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> input_slots;   ///< (table entry, input)
  std::vector<std::pair<std::uint32_t, std::uint32_t>> output_slots;  ///< (table entry, output)
  std::vector<Sizes> output_sizes;
  std::int64_t arena_bytes = 0;
  std::int64_t scratch_stride = 0;
  base::SymbolValues sizes;
  memory::MemoryPlan memory;
};

struct OptimisedGraph;

/// Settings that shape an executable.
struct BuildOptions {
  EngineOptions engine;
  jit::CompileService* compiler = nullptr;
  base::SymbolValues hints{};  ///< sizes that orders of steps are compared for
};

class Executable : public std::enable_shared_from_this<Executable> {
 public:
  /// Passes, lowering, scheduling, memory planning and compilation of a traced graph.
  /// @throws CompileError, UnsupportedError and what the passes throw.
  Executable(ir::Graph traced, Guards guards, const BuildOptions& options);

  const Guards& guards() const { return guards_; }
  const ir::Graph& traced() const { return traced_; }
  const ir::Graph& optimised() const { return optimised_; }
  const jit::Program& program() const { return program_; }
  const scheduler::Schedule& schedule() const { return schedule_; }
  const memory::Planner& planner() const { return *planner_; }
  std::span<const ir::PassRecord> passes() const { return passes_; }
  /// Steps that were run once, when the executable was made: they read parameters and constants only.
  std::size_t folded_steps() const { return folded_steps_; }
  std::size_t distinct_kernels() const;
  /// The compile units that annotations chose.
  std::span<const RegionInfo> regions() const { return regions_; }

  std::unique_ptr<BoundPlan> bind(const base::SymbolValues& sizes, int threads) const;

  /// The callable's own return value at its trace.
  std::shared_ptr<const void> prototype;

 private:
  bool build(OptimisedGraph& graph, const BuildOptions& options);
  AddressSource source_of(ir::BufferId buffer, const memory::MemoryPlan& plan) const;
  std::vector<jit::LibraryOperand> library_operands(const jit::Launch& launch,
                                                    const base::SymbolValues& sizes) const;
  void make_schedule(const BuildOptions& options);
  scheduler::BoundStep bind_step(std::size_t step, const base::SymbolValues& sizes, int threads,
                                 BoundPlan& plan) const;

  Guards guards_;
  ir::Graph traced_;
  ir::Graph optimised_;
  std::vector<ir::PassRecord> passes_;
  std::vector<RegionInfo> regions_;
  jit::Program program_;
  scheduler::Schedule schedule_;
  std::unique_ptr<memory::Planner> planner_;
  std::vector<jit::CpuKernelPtr> kernels_;  ///< by PlanStep::kernel; null for library calls
  std::vector<ir::Literal> fixed_;          ///< by buffer: parameters, constants, folded results
  std::size_t folded_steps_ = 0;
};

}  // namespace heddle::engine
