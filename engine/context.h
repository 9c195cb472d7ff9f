// What one request in flight owns: arena, scratch and the addresses of every kernel argument.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/stripes.h"
#include "engine/executable.h"
#include "engine/failure.h"
#include "engine/region_run.h"

namespace heddle::engine {

class ExecutionContext {
 public:
  ExecutionContext() = default;
  ~ExecutionContext();
  ExecutionContext(const ExecutionContext&) = delete;
  ExecutionContext& operator=(const ExecutionContext&) = delete;

  /// Makes this context ready for `plan`: nothing to do when it ran it last. Grows the arena if needed.
  /// @throws OutOfMemory.
  void use(const BoundPlan& plan);
  /// Puts in the caller's addresses; then the plan can be run. Outputs whose sizes are not known yet come
  /// from `source`.
  void set_io(const BoundPlan& plan, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs, OutputSource* source = nullptr);
  std::span<const scheduler::BoundStep> steps() const { return frame_.steps(); }
  /// @return the first status word that is not 0, else 0.
  std::int32_t run(scheduler::Executor& executor) {
    if (frame_.has_next()) [[unlikely]]
      return run_phases(frame_, executor);
    return executor.run(frame_.steps(), frame_.stages());
  }
  /// Of the first phase.
  Frame& frame() { return frame_; }
  char* arena() { return arena_; }
  std::int64_t arena_bytes() const { return arena_bytes_; }
  /// In a pool, of the thread that took it last.
  std::size_t place() const { return place_; }
  void set_place(std::size_t place) { place_ = place; }
  /// Of the arenas of the last run.
  std::int64_t peak_bytes() { return frame_.io() == nullptr ? 0 : frame_.io()->peak_bytes; }
  /// What the last run failed with, by its status word: what a step stored, or a check found.
  std::exception_ptr take_failure(const BoundPlan& plan, std::int32_t status) {
    return failure_.take(plan.executable->program(), status);
  }

 private:
  std::size_t place_ = 0;
  std::uint64_t plan_id_ = 0;
  char* arena_ = nullptr;
  std::int64_t arena_bytes_ = 0;
  Frame frame_;
  Failure failure_;
};

/// Contexts that wait for a request. Taking and giving back is one exchange, of the place that a thread begins with: the
/// same context comes back to it, with memory that is in its caches, and threads that call at once write apart. Where that
/// place is empty any other's context serves, and goes to the taker's place; when none is left a new one is made.
class ContextPool {
 public:
  ~ContextPool();
  std::unique_ptr<ExecutionContext> acquire();
  void release(std::unique_ptr<ExecutionContext> context) noexcept;
  /// Frees what contexts that wait hold. @return bytes of arenas
  std::size_t drop_idle() noexcept;

 private:
  struct alignas(base::kLineBytes) Place {
    std::atomic<ExecutionContext*> context{nullptr};
  };
  std::array<Place, base::kStripes> places_{};
};

}  // namespace heddle::engine
