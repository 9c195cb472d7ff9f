// One lowered graph with its schedule, memory plan and compiled kernels: that of an engine's callable, or
// one nested in it.
#pragma once

#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/expr_table.h"
#include "engine/bound.h"
#include "engine/fold.h"
#include "engine/phases.h"
#include "heddle/engine.h"
#include "ir/analysis/unbacked.h"
#include "jit/compile_service.h"
#include "jit/constant_cache.h"
#include "jit/footprint.h"
#include "jit/library.h"
#include "jit/program.h"
#include "scheduler/capture.h"
#include "scheduler/order.h"

namespace heddle::engine {

class BatchChoice;
class CudaRuntime;
class CudaUnit;

class Unit;

/// A program nested in another, and the arguments that are the same in each run: where their bytes lie.
struct NestedKey {
  std::shared_ptr<const jit::Program> program;
  std::vector<std::pair<std::uint32_t, const void*>> fixed{};
  friend auto operator<=>(const NestedKey&, const NestedKey&) = default;
};
/// A unit that several calls share.
struct NestedUnit {
  std::shared_ptr<const Unit> unit;
  std::vector<ir::Literal> fixed;  ///< keep the addresses of its key taken
};
using NestedUnits = std::map<NestedKey, NestedUnit>;

/// Settings that shape an executable.
struct BuildOptions {
  EngineOptions engine;
  jit::CompileService* compiler = nullptr;
  jit::ConstantCache* constants = nullptr;  ///< where prepared constants are kept; null: nowhere
  std::shared_ptr<CudaRuntime> cuda{};      ///< where steps run; null: on the CPU
  std::uint32_t streams = 1;                ///< on CUDA, at most
  bool graphs = false;                      ///< on CUDA: steps go into graphs
  bool keep_plans = false;                  ///< on disk, for later processes (engine/kept_plan.h)
  bool autotune = false;  ///< variants of kernels and library calls are those measured
  std::int64_t cache_bytes =
      0;  ///< on the CPU: of a thread's second-level cache (engine/chains.h); 0: steps are run whole
  scheduler::CaptureOptions capture{};  ///< which of them; `enabled` and `sizes` are not looked at
  base::SymbolValues hints{};           ///< sizes that orders of steps are compared for
  int threads = 1;                      ///< that share a step's iterations
  /// Tests put one here that makes mistakes.
  jit::Program (*lower)(const ir::Graph&, const jit::LowerOptions&) = jit::lower;
  NestedUnits* nested = nullptr;  ///< what a unit around this one has; null: there is none
};

/// A kernel of an annotated region, or of none, could not be compiled.
struct KernelFailure : std::runtime_error {
  KernelFailure(std::string in, const char* why)
      : std::runtime_error(why), region(std::move(in)), cause(std::current_exception()) {}
  std::string region;
  std::exception_ptr cause;
};

/// Sizes as a nested program sees them: its own, and those around it, without the bytes of workspaces there.
base::SymbolValues nested_sizes(const jit::NestedCall::Region& region,
                                const base::SymbolValues& sizes);

/// Plans of nested units that calls at the same sizes share, while one plan around them is bound.
using NestedPlans =
    std::map<std::pair<const Unit*, base::SymbolValues>, std::shared_ptr<const BoundSteps>>;

class Unit {
 public:
  /// `fixed`: bytes of parameters and constants by buffer, as from fixed_buffers(). `folded`: steps that were folded before.
  /// @throws KernelFailure.
  Unit(jit::Program program, std::vector<ir::Literal> fixed, const BuildOptions& options,
       std::size_t folded = 0);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const jit::Program& program() const { return program_; }
  const scheduler::Schedule& schedule() const { return schedule_; }
  const memory::Planner& planner() const { return *planner_; }
  /// Null on the CPU.
  const CudaUnit* cuda() const { return cuda_.get(); }
  /// Whether blocks of any CUDA kernel may share tiles, nested units included.
  bool shares_tiles() const;
  /// Steps that were run once, here: they read parameters and constants only. Nested ones included.
  std::size_t folded_steps() const;
  std::size_t own_folded_steps() const { return folded_steps_; }  ///< without nested ones
  /// The units of a step that runs nested plans, as in jit::NestedCall::regions; empty for other steps.
  /// Calls of the same graph may share one.
  std::span<const std::shared_ptr<const Unit>> nested(std::uint32_t kernel) const {
    return nested_[kernel];
  }
  /// Adds what is overwritten and what is copied to be written, nested units included, each once.
  void count_updates(EngineStats& stats) const;
  /// Arguments that are donated, each with an output that may lie where it does.
  std::span<const ir::SharedPlace> shared_places() const { return shared_places_; }
  bool may_share(std::uint32_t argument, std::uint32_t output) const;
  /// Adds the addresses of the machine code in use, nested units included.
  void collect_code(std::vector<const void*>& code) const;

  const Phases& phases() const { return phases_; }

  /// The operands of a step's library call with sizes put in: what `step` of the schedule is bound with. Of values().
  std::vector<jit::LibraryOperand> library_operands(ir::StepId step,
                                                    const base::ExprTable::Values& values) const;
  /// By buffer: parameters, constants and what was made of them. On CUDA they are on the device, and there are none here.
  std::span<const ir::Literal> fixed() const { return fixed_; }
  /// What steps that were folded here made.
  const FoldedResults& folded_results() const { return folded_results_; }
  DType output_dtype(std::size_t k) const {
    return program_.record.buffers[program_.outputs[k]].dtype;
  }
  /// Bytes of parameters, constants and what was made of them.
  std::int64_t fixed_bytes() const { return fixed_bytes_; }

  /// Of a step that is a nest, without constants and parameters. Threads: any.
  const jit::Footprints& footprints(ir::StepId step) const;

  /// What depends on sizes. Symbols without a value fail where something asks for what depends on them.
  base::ExprTable::Values values(const base::SymbolValues& sizes) const {
    return expressions_.evaluate(sizes);
  }
  /// What a step writes and the next one reads, whole or a view of it.
  std::span<const ir::BufferId> passed_on(ir::StepId step) const {
    return std::span(passed_on_)
        .subspan(recipes_[step].first_passed_on,
                 recipes_[step + 1].first_passed_on - recipes_[step].first_passed_on);
  }
  /// Of `values()`.
  std::int64_t buffer_bytes(ir::BufferId buffer, const base::ExprTable::Values& values) const {
    return values[bytes_values_[buffer]];
  }

  /// Fills `plan`, the first phase, for `sizes` and so many workers.
  void bind(const base::SymbolValues& sizes, int threads, BoundSteps& plan) const;
  /// Fills `plan`, the phase after `before`, for `sizes`: those of `before` and what was found since.
  void bind_next(const BoundSteps& before, const base::SymbolValues& sizes, BoundSteps& plan) const;
  /// Sizes of result `k` as the program has them.
  const ir::Dims& output_sizes(std::size_t k) const {
    return schedule_.record.buffers[program_.outputs[k]].sizes;
  }

 private:
  /// What all plans have in common of a step. Numbers are those of `expressions_`.
  struct StepRecipe {
    std::uint32_t kernel = 0;
    const void* code = nullptr;    ///< of a nest on the CPU
    std::uint32_t first_size = 0;  ///< in `size_values_`; up to where those of the next step begin
    std::uint32_t first_address = 0;    ///< in `addresses_`, in the same way
    std::uint32_t first_passed_on = 0;  ///< in `passed_on_`, in the same way
    std::uint32_t extent = 0;           ///< of nests
    std::uint32_t scratch_bytes = 0;    ///< of nests on the CPU
    std::uint32_t work = 0;
  };
  /// Where the address of a buffer comes from in all plans.
  struct AddressRecipe {
    AddressSource
        source{};  ///< but for offsets, and addresses of constants that have to be aligned
    ir::BufferId root = 0;
    bool aligned = false;
  };

  void make_recipes();
  void add_passed_on(ir::StepId step);
  void add_recipe(ir::StepId step, base::ExprTable::Builder& expressions);
  AddressRecipe address_recipe(ir::BufferId buffer, bool any_address) const;
  AddressSource source_of(const AddressRecipe& recipe, const BoundSteps& plan) const;
  void add_nested(const BuildOptions& options);
  void add_nested(std::uint32_t step, std::span<const ir::BufferId> roots,
                  const BuildOptions& options);
  static std::shared_ptr<const Unit> nested_unit(NestedKey key,
                                                 const std::vector<ir::Literal>& values,
                                                 const BuildOptions& options);
  std::vector<const Unit*> with_nested() const;
  void plan_for_shares(std::uint32_t k, base::SymbolValues& sizes) const;
  base::SymbolValues sizes_to_plan_for(base::SymbolValues hints) const;
  void make_schedule(const BuildOptions& options);
  void plan_streams(const BuildOptions& options);
  void move_to_device();
  void log_split_steps(const scheduler::CapturePlan& plan, const BuildOptions& options) const;
  scheduler::CapturePlan order_for_graphs(const BuildOptions& options);
  /// Of each kernel of the program; not valid where no step is left that needs one compiled.
  using PendingKernels = std::vector<std::shared_future<jit::CpuKernelPtr>>;
  PendingKernels submit(const std::vector<bool>& folded, const BuildOptions& options) const;
  /// @throws KernelFailure
  void wait_for(const PendingKernels& pending);
  std::unique_ptr<memory::Planner> plan_memory(memory::Planner::Options options) const;
  std::int64_t peak_bytes(const base::SymbolValues& sizes) const;
  std::unique_ptr<BoundRegion> bind_region(const jit::NestedCall& call, std::uint32_t kernel,
                                           const base::SymbolValues& sizes, int threads,
                                           NestedPlans& known) const;
  void bind_launch(ir::StepId step, BoundSteps& plan) const;
  void bind_library(ir::StepId begin, ir::StepId end, const base::ExprTable::Values& values,
                    std::int64_t times, BoundSteps& plan) const;
  void make_library_ready(const BoundSteps& plan) const;
  scheduler::BoundStep bind_step(ir::StepId step, const base::ExprTable::Values& values,
                                 BoundSteps& plan) const;
  void bind_addresses(ir::StepId step, BoundSteps& plan) const;
  void bind_steps(const base::ExprTable::Values& numbers, BoundSteps& plan) const;
  void bind_batch(const memory::Repeat& repeat, BoundSteps& plan) const;
  void tile_alone(BoundBatch& batch) const;
  BoundBatch::Move move_of(ir::BufferId root, const base::ExprTable::Values& once,
                           const BoundSteps& plan) const;
  void bind_other(const StepRecipe& recipe, const base::ExprTable::Values& values, std::size_t at,
                  scheduler::BoundStep& bound, BoundSteps& plan) const;
  std::shared_ptr<const BoundSteps> bind_nested(const base::SymbolValues& sizes, int threads,
                                                NestedPlans& known) const;
  void bind_phase(BoundSteps& plan, NestedPlans& known) const;
  std::optional<Error::Parts> refused(const BoundSteps& plan) const;
  void bind_memory(BoundSteps& plan) const;
  void bind_address(const AddressSource& source, BoundSteps& plan) const;
  void bind_query(BoundSteps& plan) const;
  void bind_releases(BoundSteps& plan) const;
  void find_shared_places();
  void find_batches();

  jit::Program program_;
  /// By buffer: parameters, constants, folded results. On CUDA gone when they are on the device.
  std::vector<ir::Literal> fixed_;
  std::size_t folded_steps_ = 0;
  FoldedResults folded_results_;
  std::int64_t fixed_bytes_ = 0;
  bool check_plans_ = false;
  std::int64_t cache_bytes_ = 0;
  jit::CompileService* compiler_ = nullptr;
  jit::ConstantCache* constants_ =
      nullptr;  ///< null: packed operands of library calls are not kept
  const jit::LibraryVerdicts* verdicts_ = nullptr;  ///< null: library calls are not measured
  scheduler::Schedule schedule_;
  Phases phases_;
  std::unique_ptr<memory::Planner> planner_;
  std::unique_ptr<BatchChoice>
      batch_choice_;  ///< null: no steps are run for some entries after others
  std::vector<ir::SharedPlace> shared_places_;
  std::vector<jit::CpuKernelPtr> kernels_;  ///< by PlanStep::kernel; null for library calls
  mutable jit::FixedFacts fixed_facts_;     ///< of `fixed_`
  mutable std::mutex footprints_mutex_;
  /// By nest, and which of its buffers are fixed.
  mutable std::map<std::pair<const jit::Nest*, std::vector<bool>>, jit::Footprints> footprints_;
  base::ExprTable expressions_;
  std::vector<StepRecipe> recipes_;  ///< by step, and where those of the last one end
  std::vector<std::uint32_t> size_values_;
  std::vector<AddressRecipe> addresses_;
  std::vector<ir::BufferId> passed_on_;
  std::vector<std::uint32_t> bytes_values_;  ///< by buffer
  std::unique_ptr<CudaUnit> cuda_;
  std::vector<std::vector<std::shared_ptr<const Unit>>> nested_;  ///< by PlanStep::kernel
};

}  // namespace heddle::engine
