// Plans with sizes put in: what a context needs to run. Immutable, but that they remember what follows from them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "heddle/error.h"
#include "heddle/tensor.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "jit/custom/custom_call.h"
#include "jit/library.h"
#include "memory/planner.h"
#include "scheduler/executor.h"

namespace heddle::scheduler {
struct StreamPlan;
}
namespace heddle::jit {
struct NestedCall;
}
namespace heddle::jit::cuda {
class CudaKernel;
class LibraryCall;
}  // namespace heddle::jit::cuda

namespace heddle::engine {

/// Where the address of a kernel argument comes from.
struct AddressSource {
  enum class Kind : std::uint8_t { Arena, Input, Output, Fixed };
  Kind kind = Kind::Arena;
  std::int64_t offset = 0;     ///< Arena: bytes
  std::uint32_t position = 0;  ///< Input, Output: which; Arena: of which phase
  void* address = nullptr;     ///< Fixed: parameters and constants
};

struct BoundRegion;
struct BoundBatch;

/// A step on a CUDA device with sizes put in.
struct CudaLaunch {
  const jit::cuda::CudaKernel* kernel = nullptr;  ///< null: the step runs nested plans
  std::uint32_t variant = 0;                      ///< of the kernel
  std::uint32_t blocks = 0;
  std::uint32_t parts = 1;  ///< blocks that share a tile of a product
  std::uint32_t sizes = 0;  ///< parameters of the kernel that are sizes
  bool measured = false;    ///< the variant was found to be the fastest, not just expected to be
  /// Not null: a library's call comes first, and `blocks` go over what it leaves; 0: nothing is left to do.
  std::shared_ptr<const jit::cuda::LibraryCall> library{};

  bool is_empty() const { return blocks == 0 && library == nullptr; }
};

class LatePlans;
class Unit;

/// A donated argument that no step uses any more when the first `stages` of a phase have run.
struct Release {
  std::uint32_t stages = 0;
  std::uint32_t argument = 0;
};

/// The steps of one phase of a program with sizes put in; without addresses. Steps are numbered from the first
/// of the phase. Most programs have one phase (engine/phases.h).
struct BoundSteps {
  BoundSteps();
  ~BoundSteps();
  BoundSteps(const BoundSteps&) = delete;
  BoundSteps& operator=(const BoundSteps&) = delete;

  std::vector<AddressSource> table;        ///< of all steps, one after another
  std::vector<std::uint32_t> table_start;  ///< of each step
  std::vector<std::vector<std::int64_t>> step_sizes;
  std::vector<std::unique_ptr<jit::BoundLibraryCall>> library;  ///< by step, null for kernels
  std::vector<std::unique_ptr<jit::BoundCustomCall>> custom;    ///< by step, null for others
  std::vector<std::unique_ptr<BoundRegion>> regions;            ///< by step, null for others
  std::vector<std::unique_ptr<BoundBatch>> batches;             ///< in order (engine/batch_runs.h)
  std::vector<scheduler::BoundStep> steps;
  std::vector<scheduler::BoundStage> stages;
  std::vector<CudaLaunch> cuda;                                       ///< by step; empty on the CPU
  const scheduler::StreamPlan* streams = nullptr;                     ///< CUDA
  const std::vector<struct GraphSegment>* graphs = nullptr;           ///< CUDA
  std::vector<std::pair<std::uint32_t, std::uint32_t>> input_slots;   ///< (table entry, input)
  std::vector<std::pair<std::uint32_t, std::uint32_t>> output_slots;  ///< (table entry, output)
  std::vector<Release> releases;                                      ///< by stages
  std::int64_t scratch_bytes = 0;  ///< of one worker, nested plans included
  base::SymbolValues sizes;        ///< of the graph, and bytes of workspaces
  /// Of this phase and those before it. Their arenas are apart; in the offsets they follow one another.
  memory::MemoryPlan memory;
  std::vector<memory::Repeat>
      repeats;  ///< steps of all phases that are run for some entries after others

  const Unit* unit = nullptr;
  int threads = 1;
  std::uint32_t phase = 0;
  ir::StepId first_step = 0;               ///< number of steps[0] in the schedule
  std::vector<std::int64_t> arena_begins;  ///< by phase up to this one, in the offsets
  /// Where the addresses begin in the table that tell the sizes of the next phase; kNone: this is the last.
  std::uint32_t query = ir::kNone;

  /// What running the phase throws as a ShapeError: sizes that the run told do not fit a step. Nothing else is bound then.
  std::optional<Error::Parts> refusal;

  std::unique_ptr<LatePlans> late;  ///< what follows; null: this is the last phase

  /// Where the addresses of a step end in the table.
  std::size_t table_end(std::size_t step) const {
    if (step + 1 < table_start.size()) return table_start[step + 1];
    return query == ir::kNone ? table.size() : query;
  }
  std::int64_t arena_bytes() const { return memory.peak_bytes - arena_begins.back(); }
  /// Of memory that the plan itself takes, about.
  std::int64_t held_bytes() const;
};

/// Steps that are run again and again, each time for some entries of a batch. In the plan around them they are one stage, and the first
/// of them runs all.
struct BoundBatch {
  std::uint32_t first = 0;  ///< in the plan around
  std::int64_t times = 0;   ///< at least 2
  std::unique_ptr<BoundSteps>
      steps;  ///< with the sizes of one time; their addresses are those of the plan around, moved
  /// How far an address is from the first one of the plan around.
  struct Move {
    std::int64_t time_bytes = 0;    ///< each time
    std::int64_t worker_bytes = 0;  ///< for each worker
  };
  std::vector<Move> moves;  ///< by entry of that plan's table, from that of the first step on
  int workers = 1;          ///< that have times of their own; one: all share each time
  std::vector<scheduler::BoundStage>
      alone;  ///< the stages as one worker runs them, maybe in pieces
};

/// A step that runs nested plans.
struct BoundRegion {
  const jit::NestedCall* call = nullptr;
  ir::RegionKind kind = ir::RegionKind::Once;
  std::vector<std::shared_ptr<const BoundSteps>> plans;  ///< as in jit::NestedCall::regions
  std::uint32_t operands = 0;
  std::uint32_t carried = 0;
  std::uint32_t scanned = 0;
  std::uint32_t results = 0;
  std::int64_t length = 0;  ///< Scan: iterations
  bool reverse = false;
  bool counted = false;  ///< Scan: the first operand after the scanned ones says how many
  std::vector<std::int64_t> carried_bytes;
  std::vector<std::int64_t> slice_bytes;    ///< of the scanned operands
  std::vector<std::int64_t> element_bytes;  ///< of the stacked results
  // The workspace: the plans' arenas, which follow one another in time, then:
  std::vector<std::int64_t> spare_offsets;  ///< the second copy of each carried value
  std::int64_t condition_offset = 0;
  std::int64_t workspace_bytes = 0;
};

}  // namespace heddle::engine
