// Entering a phase: its sizes are found, its steps bound to them and given memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/region_run.h"

namespace heddle::engine {

/// Bytes of what a frame needs at once: its arena, then the scratch of its workers.
struct Needs {
  std::int64_t scratch = 0;  ///< where it begins
  std::int64_t stride = 0;   ///< from one worker's to the next one's
  std::int64_t bytes = 0;
};

Needs needs_of(const BoundSteps& plan);

/// What follows one frame. Remembers the frames of the sizes that it met last, so that a request with such
/// sizes makes none.
class LatePhase {
 public:
  /// The frame of the phase after `before`, whose steps have all run. Null when *status says what failed.
  /// @throws CustomOpError when the op cannot tell its sizes; ShapeError when they contradict its shape
  ///         function, and when a size that is computed from them is below 0; OutOfMemory; what OutputSource::output() throws.
  Frame* enter(Frame& before, RegionMachine& machine, std::int32_t* status);

 private:
  struct Entry {
    std::vector<std::int64_t> late_sizes;
    std::shared_ptr<const BoundSteps> plan;
    Frame frame;
    bool is_prepared = false;
  };
  /// Of whichever entry runs; steps of different lanes run at once.
  struct Memory {
    const void* lane = nullptr;  ///< as RegionMachine::lane()
    std::shared_ptr<void> block{};
    std::int64_t bytes = 0;
  };
  Entry& entry_for(const BoundSteps& before, std::span<const base::Symbol> symbols,
                   const base::SymbolValues& sizes);
  char* memory_of(RegionMachine& machine, std::int64_t bytes);
  void give_memory(Entry& entry, Frame& before, RegionMachine& machine);

  std::vector<std::unique_ptr<Entry>> entries_;  ///< most recently used first
  std::unique_ptr<StartedRegion> started_;       ///< what the phase's first step finishes
  std::vector<Memory> memories_;                 ///< by lane
  std::vector<char*> arenas_;                    ///< that a frame is given
};

}  // namespace heddle::engine
