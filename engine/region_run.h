// Running nested plans: the taken branch, the iterations of a loop.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/bound.h"

namespace heddle::engine {

struct RegionFrame;

/// The addresses of one plan's kernel arguments in one context, and its steps with them put in.
class Frame {
 public:
  Frame();
  Frame(Frame&&) noexcept;
  ~Frame();

  /// Memory of a request: stays where it is as long as the frame is used for the plan.
  struct Memory {
    char* arena = nullptr;
    void* scratch = nullptr;
    std::int64_t scratch_stride = 0;
    void* request = nullptr;  ///< BoundStep::request
  };
  void prepare(const BoundSteps& plan, const Memory& memory);
  void set(std::uint32_t entry, void* address) { table_[entry] = address; }
  void set_input(std::uint32_t position, void* address);
  void set_output(std::uint32_t position, void* address);
  std::span<const scheduler::BoundStep> steps() const { return steps_; }
  std::span<const scheduler::BoundStage> stages() const { return plan_->stages; }
  const BoundSteps& plan() const { return *plan_; }

 private:
  const BoundSteps* plan_ = nullptr;
  std::vector<void*> table_;
  std::vector<scheduler::BoundStep> steps_;
  std::vector<std::unique_ptr<RegionFrame>> regions_;
};

/// The frames of a step with nested plans.
struct RegionFrame {
  const BoundRegion* region = nullptr;
  char* workspace = nullptr;
  std::vector<Frame> frames;  ///< as BoundRegion::plans
};

/// What runs the plans of a region: the CPU's executor, or a CUDA device. Its memory may be out of the
/// host's reach.
class RegionMachine {
 public:
  virtual ~RegionMachine() = default;
  /// Runs all steps. @return the first status word that is not 0, else 0.
  virtual std::int32_t run(const Frame& frame) = 0;
  /// Reads a bool that the steps run so far wrote. @return as run().
  virtual std::int32_t truth(const void* address, bool& answer) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
};

/// Runs a step whose `state` is a RegionFrame.
void run_region(const scheduler::BoundStep& step, RegionMachine& machine, std::int32_t* status);
/// BoundStep::run_alone of such a step: on the CPU.
void run_region(const scheduler::BoundStep& step, scheduler::Executor& executor,
                std::int32_t* status);

}  // namespace heddle::engine
