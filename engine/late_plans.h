// Plans that follow from a bound one: its next phases, and the nested plans that tell their sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/bound.h"

namespace heddle::engine {

/// Each is bound when it is first needed and serves all frames of the plan, on whatever threads these run.
class LatePlans {
 public:
  static constexpr std::size_t kRemembered = 8;  ///< next phases

  /// The phase after `before`, whose plans these are, at `sizes`; late_sizes: those that it is the first to know.
  std::shared_ptr<const BoundSteps> next(const BoundSteps& before,
                                         std::span<const std::int64_t> late_sizes,
                                         const base::SymbolValues& sizes);
  /// The first phase of the nested plan `position` of the step that begins the next phase: `nested` at `sizes`, which
  /// are the same at each call.
  std::shared_ptr<const BoundSteps> started(std::size_t position, const Unit& nested,
                                            const base::SymbolValues& sizes, int threads);

 private:
  struct Next {
    std::vector<std::int64_t> late_sizes;
    std::shared_ptr<const BoundSteps> plan;
  };
  std::shared_ptr<const BoundSteps> known_next(std::span<const std::int64_t> late_sizes);

  std::mutex mutex_;
  std::vector<Next> next_;  ///< most recently used first
  std::vector<std::shared_ptr<const BoundSteps>> started_;
};

}  // namespace heddle::engine
