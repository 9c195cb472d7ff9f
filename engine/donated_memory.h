// The memory of donated inputs while a call runs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/guards.h"
#include "engine/region_run.h"
#include "engine/unit.h"
#include "heddle/tensor.h"
#include "scheduler/executor.h"

namespace heddle::engine {

/// Memory of donated inputs of which no other handle is left, for outputs of as many bytes that may lie there.
class TakenMemory {
 public:
  /// @param on_device  outputs are memory of a CUDA device, not of the host
  /// @param inputs  the only handles of the call
  TakenMemory(const Unit& unit, bool on_device, std::span<const Tensor> inputs)
      : unit_(unit), on_device_(on_device), inputs_(inputs) {}

  /// A tensor for output `position`; an empty one: there is no memory for it. It shares the input's until keep().
  Tensor take(std::size_t position, DType dtype, const Sizes& sizes);
  /// The run went well: outputs own what they took.
  void keep();

 private:
  bool is_free(std::uint32_t argument, std::size_t bytes) const;

  struct Taken {
    std::uint32_t argument;
    std::shared_ptr<Tensor::Impl> from, to;
  };
  const Unit& unit_;
  bool on_device_;
  std::span<const Tensor> inputs_;
  std::vector<Taken> taken_;
};

/// Whether no other handle is left of the tensor, and its memory is of our own allocators.
bool is_sole_owner(const Tensor& tensor);

/// Runs the steps of one phase, and lets go of donated inputs as soon as no later step uses them.
/// @return as RegionMachine::run().
std::int32_t run_releasing(Frame& frame, scheduler::Executor& executor, std::span<Tensor> inputs);

/// Lets go of all donated inputs.
void release_donated(const Guards& guards, std::span<Tensor> inputs);

/// Copies the elements of a row-major tensor, when they are there, into one of the same type and device kind, or of the
/// host. The host waits.
void copy_elements(const Tensor& from, Tensor& to);

}  // namespace heddle::engine
