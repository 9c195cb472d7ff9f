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

/// BoundStep::run_alone of a step whose `state` is a RegionFrame.
void run_region(const scheduler::BoundStep& step, scheduler::Executor& executor,
                std::int32_t* status);

}  // namespace heddle::engine
