// Runs the stages of a bound plan on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace heddle::scheduler {

class Executor;

/// One step with everything put in. Plain data, made once per bound plan and context.
struct BoundStep {
  /// Runs iterations [begin, end) of the step; where end < begin, which only happens to a reversible one, [end, begin), the last
  /// of them first if it likes. `worker` is this thread's number in [0, threads).
  /// Must not throw: errors go into *status (0: none; the first one wins).
  void (*run)(const BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
              std::int32_t* status);
  const void* code = nullptr;           ///< for `run`: the kernel
  void* const* buffers = nullptr;       ///< addresses, in the kernel's order
  const std::int64_t* sizes = nullptr;  ///< size parameters
  std::int64_t extent = 1;              ///< iterations that may be split among threads
  bool is_reversible = false;
  std::int64_t work = 0;           ///< estimated scalar operations of all iterations
  std::int64_t scratch_bytes = 0;  ///< of one worker
  void* scratch = nullptr;         ///< worker w's scratch lies at scratch + w * scratch_stride
  std::int64_t scratch_stride = 0;
  void* request = nullptr;  ///< for `run`: what belongs to the request in flight
  /// A step that runs plans of its own, on the calling thread and alone in its stage; `run` is null then.
  void (*run_alone)(const BoundStep& step, Executor& executor, std::int32_t* status) = nullptr;
  void* state = nullptr;  ///< for `run_alone`
};

/// Steps of one stage: [first, first + count); all of their iterations, or of one step a piece.
struct BoundStage {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t piece = 0;
  std::uint32_t pieces = 1;

  bool is_partial() const { return pieces > 1; }
};

/// What a step takes when its parts run one after another.
struct ShareTimes {
  double all_us = 0;  ///< all of them
  double longest_us =
      0;  ///< what the threads would take that shared them, but for what sharing costs
  std::int32_t status = 0;
};

/// Iterations [begin, end).
struct Iterations {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// What a worker has of a step's `extent` iterations in a stage: of its own share, which is as long as others' and the same one in
/// every stage, a piece. Neighbouring shares begin, or end, where they meet, so that what a piece reads beyond its worker's share the
/// neighbour wrote in as early a piece.
constexpr Iterations piece_of(std::int64_t extent, const BoundStage& stage, int worker,
                              int threads) {
  const std::int64_t first = extent * worker / threads;
  const std::int64_t size = extent * (worker + 1) / threads - first;
  const bool ascends = (threads - worker) % 2 == 1;
  const std::int64_t piece = ascends ? stage.piece : stage.pieces - 1 - stage.piece;
  return {first + size * piece / stage.pieces, first + size * (piece + 1) / stage.pieces};
}

/// Runs stages on the caller's thread and on threads that TBB lends, so that any number of engines, and
/// the host's own TBB work, share one pool. A lent thread waits for the next stage with bounded spinning
/// (HEDDLE_SPIN_US, 50 by default) and then goes back. Each worker begins with its own share of a stage's iterations, the same one of
/// each stage, whose memory is in its caches; then it takes what others have not begun. Workers take subnormal numbers as the caller's
/// thread does. A caller never waits inside TBB: it cannot be made
/// to run another request's work or a compile.
class Executor {
 public:
  /// @param threads in [1, 1024]: the caller's thread included; more than there are processors gain
  /// nothing.
  explicit Executor(int threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  int threads() const;
  /// Runs the stages one after another. A stage whose work is below the cost of a fork runs inline on the
  /// calling thread. Allocates nothing. Any number of threads may call it at once: a call that finds the
  /// workers busy runs inline, and so does one while callers, of any executor, are at work on every processor that the process has the time
  /// of, or on as many as threads().
  /// @return the first status word that is not 0, else 0. @throws Cancelled where the caller's StopScope says so.
  /// `backwards`: reversible steps begin with their last iterations, as every other turn of a loop does: what the turn
  /// before read last is still in the caches then.
  std::int32_t run(std::span<const BoundStep> steps, std::span<const BoundStage> stages,
                   bool backwards = false);
  /// Runs a step as run() does, but all of its parts on the calling thread, and finds out which thread would have had which: what
  /// threads() would take of it can be told where there are fewer processors.
  ShareTimes run_shares(const BoundStep& step);

 private:
  friend class ShareScope;
  std::int32_t run_shares(std::span<const BoundStep> steps, std::span<const BoundStage> stages);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// While it lives, what run() of the executor does on this thread, as nested plans have it do, is run and timed as run_shares() has it.
class ShareScope {
 public:
  explicit ShareScope(Executor& executor);
  ~ShareScope();
  ShareScope(const ShareScope&) = delete;
  ShareScope& operator=(const ShareScope&) = delete;
  /// By how much less the threads would take that shared it.
  double saved_us() const { return times_.all_us - times_.longest_us; }

 private:
  friend class Executor;
  Executor& executor_;
  ShareScope* around_;
  ShareTimes times_;
};

}  // namespace heddle::scheduler
