// Steps that treat the entries of a batch apart are run for some entries after others, by several workers at once, each with entries of its
// own: what lies between the steps takes memory for these entries alone, and stays in the caches, and no worker waits for another.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/bound.h"

namespace heddle::engine {

/// Proves that no time writes what another one touches, that addresses stay within what a time has of each buffer, and that workers' arenas
/// are apart.
/// @throws InternalError.
void check_batches(const BoundSteps& plan);

/// The steps of a BoundBatch with addresses put in, for each worker.
class BatchFrame {
 public:
  explicit BatchFrame(const BoundBatch& batch);
  /// Runs all. `step`: of the plan around. @return as Executor::run().
  std::int32_t run(const scheduler::BoundStep& step, scheduler::Executor& executor);

 private:
  struct Worker {
    std::vector<void*> table;
    std::vector<scheduler::BoundStep> steps;
  };
  static void run_times(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end,
                        int worker, std::int32_t* status);
  void begin(const scheduler::BoundStep& step);
  void put(std::int64_t time, std::size_t worker);
  std::int32_t run_time(std::int64_t time, int worker);

  const BoundBatch& batch_;
  void* const* addresses_ = nullptr;  ///< of the plan around
  std::vector<Worker> workers_;
  std::atomic<bool> stopped_{false};
};

/// BoundStep::run_alone of the first step; `state` is a BatchFrame.
void run_batch(const scheduler::BoundStep& step, scheduler::Executor& executor,
               std::int32_t* status);

}  // namespace heddle::engine
