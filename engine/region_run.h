// Running nested plans: the taken branch, the iterations of a loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/bound.h"

namespace heddle::engine {

class BatchFrame;
struct RegionFrame;
class LatePhase;
class RegionMachine;
class StartedRegion;

/// Who has memory for results whose sizes are known only while a request runs.
class OutputSource {
 public:
  virtual ~OutputSource() = default;
  /// The address for result `position`, which has `sizes`.
  virtual void* output(std::uint32_t position, const Sizes& sizes) = 0;
};

/// Of the steps with nested plans that lead from one plan, each once, however many paths of calls lead to it: no
/// such step runs while it runs.
using RegionFrames = std::unordered_map<const BoundRegion*, std::unique_ptr<RegionFrame>>;

/// What the frames of all phases of one program share: the addresses that its caller gave.
struct FrameIo {
  std::vector<void*> inputs, outputs;
  OutputSource* source = nullptr;  ///< null: the caller sets the outputs
  std::int64_t peak_bytes = 0;     ///< of the arenas of the phases that ran last
};

/// The addresses of one plan's kernel arguments in one context, and its steps with them put in.
class Frame {
 public:
  Frame();
  Frame(Frame&&) noexcept;
  ~Frame();

  /// Memory of a request: stays where it is as long as the frame is used for the plan.
  struct Memory {
    std::vector<char*> arenas;  ///< by phase up to the plan's
    void* scratch = nullptr;
    std::int64_t scratch_stride = 0;
    void* request = nullptr;  ///< BoundStep::request
  };
  /// `io`: of the phase before; null for the first, which has its own.
  void prepare(const BoundSteps& plan, Memory memory, FrameIo* io = nullptr);
  /// Goes on in other memory, without that of the arguments. Allocates nothing.
  void move_to(std::span<char* const> arenas, void* scratch, std::int64_t scratch_stride);
  void set(std::uint32_t entry, void* address) { table_[entry] = address; }
  /// See Executor::run().
  void set_backwards(bool backwards) { is_backwards_ = backwards; }
  bool is_backwards() const { return is_backwards_; }
  void set_input(std::uint32_t position, void* address);
  void set_output(std::uint32_t position, void* address);
  /// Where the steps find argument `position`; null: none of them uses it.
  void* input(std::uint32_t position) const;
  std::span<const scheduler::BoundStep> steps() const { return steps_; }
  std::span<const scheduler::BoundStage> stages() const { return plan_->stages; }
  const BoundSteps& plan() const { return *plan_; }
  const Memory& memory() const { return memory_; }

  /// Whether a phase follows.
  bool has_next() const { return plan_->query != ir::kNone; }
  /// The phase that follows, ready to run, when all steps of this one have run; null: there is none, or
  /// *status says what failed.
  Frame* next(RegionMachine& machine, std::int32_t* status);
  /// Tells the first step, one with nested plans, which of them runs, and lets it finish what has been started of
  /// that; null: it starts.
  void set_decided(std::size_t plan, StartedRegion* started);
  /// Puts in the addresses that io() has.
  void take_io();
  /// Null where there is one phase.
  FrameIo* io() { return io_; }
  /// The addresses by which the next phase's sizes are found.
  void* const* query() const { return table_.data() + plan_->query; }
  /// Where the bytes at `offset` of the plan's memory lie.
  char* at(std::int64_t offset) const;

 private:
  void prepare(const BoundSteps& plan, Memory memory, FrameIo* io, RegionFrames& regions);
  RegionFrame* region_frame(const BoundSteps& plan, std::size_t step, RegionFrames& regions);
  void put_memory();
  void put_scratch();

  const BoundSteps* plan_ = nullptr;
  bool is_backwards_ = false;
  Memory memory_;
  std::vector<void*> table_;
  std::vector<scheduler::BoundStep> steps_;
  RegionFrames regions_;  ///< empty in the frames that are in it
  std::vector<std::unique_ptr<BatchFrame>> batches_;
  std::unique_ptr<FrameIo> own_io_;
  FrameIo* io_ = nullptr;
  std::unique_ptr<LatePhase> late_;
};

/// A nested plan that has run as far as the sizes of its results take, a loop as a whole.
class StartedRegion {
 public:
  virtual ~StartedRegion() = default;
  /// Runs the rest. @return as RegionMachine::run().
  virtual std::int32_t finish(void* const* results, RegionMachine& machine) = 0;
};

/// The frames of a step with nested plans.
struct RegionFrame {
  const BoundRegion* region = nullptr;
  std::size_t workspace_at = 0;        ///< which of the step's buffers its workspace is
  std::vector<Frame> frames;           ///< as BoundRegion::plans
  std::optional<std::size_t> decided;  ///< of a cond: which of them runs; nothing: its operand says
  StartedRegion* started = nullptr;    ///< what runs instead of one of the frames
};

/// What runs the plans of a region: the CPU's executor, or a CUDA device. Its memory may be out of the
/// host's reach.
class RegionMachine {
 public:
  virtual ~RegionMachine() = default;
  /// Runs all steps. @return the first status word that is not 0, else 0.
  virtual std::int32_t run(Frame& frame) = 0;
  /// Bytes that the steps run so far wrote.
  struct Bytes {
    const void* address = nullptr;
    std::size_t count = 0;
  };
  /// Waits for those bytes, and no more than that, and puts addresses of the host in place of theirs, good until
  /// the next call. @return as run().
  virtual std::int32_t bring_to_host(std::span<Bytes> bytes) = 0;
  /// Reads a bool that the steps run so far wrote. @return as run().
  std::int32_t truth(const void* address, bool& answer);
  /// Reads an i64 that the steps run so far wrote. @return as run().
  std::int32_t number(const void* address, std::int64_t& answer);
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* memory, std::size_t bytes) = 0;
  // For plans of several phases.
  /// Memory where the steps can reach it, aligned for an arena; the last owner may give it back while steps queued
  /// so far still use it. @throws OutOfMemory.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// What the steps queued now run behind, one after another: memory that only they use is free for the next.
  virtual const void* lane() const { return nullptr; }
  /// Whether custom ops are asked for sizes by CustomOp::cuda_sizes where they have it.
  virtual bool asks_on_device() const { return false; }
  /// Queues the op's cuda_sizes function, which writes to `told`, memory of allocate().
  /// @throws CustomOpError when the function throws.
  virtual void queue_sizes(const jit::CustomCall& call, const base::SymbolValues& sizes,
                           void* const* buffers, void* told);
};

/// Runs the phase of `frame` and those that follow. @return as RegionMachine::run().
std::int32_t run_phases(Frame& frame, RegionMachine& machine);
/// The same on the CPU. `run`: runs the steps of one phase; empty: as the executor does.
std::int32_t run_phases(Frame& frame, scheduler::Executor& executor,
                        const std::function<std::int32_t(Frame&)>& run = {});

/// Runs a step whose `state` is a RegionFrame.
void run_region(const scheduler::BoundStep& step, RegionMachine& machine, std::int32_t* status);
/// BoundStep::run_alone of such a step: on the CPU.
void run_region(const scheduler::BoundStep& step, scheduler::Executor& executor,
                std::int32_t* status);

}  // namespace heddle::engine
