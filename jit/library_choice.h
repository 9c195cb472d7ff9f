// Library calls that can be computed in several ways: which is the fastest here.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/kernel_cache.h"
#include "jit/library.h"
#include "jit/verdicts.h"

namespace heddle::jit {

/// Which way was measured to be the fastest, by class of sizes (Verdicts). Kept on disk.
///
/// Threads: any.
class LibraryVerdicts {
 public:
  /// @param cache  null: nothing is kept. Read when the first verdict is asked for.
  /// @param key    what measurements depend on besides sizes: the processor, the library.
  LibraryVerdicts(KernelCache* cache, std::string key);

  /// The way of `choice` to take; nothing: not measured.
  std::optional<std::uint32_t> find(const LibraryChoice& choice) const;
  void add(const LibraryChoice& choice, std::uint32_t way);
  /// Held by who measures: two at a time would take the caches from each other.
  std::mutex& measuring() { return measuring_; }

 private:
  void load(std::span<const std::string> ways) const;

  KernelCache* cache_;
  std::string key_;
  mutable std::once_flag loaded_;
  mutable Verdicts verdicts_;
  std::mutex measuring_;
};

/// The seconds of processor time that each way of `call` takes on this thread: the least of several times, in turns, on memory
/// of its own that holds small numbers. Fixed operands are taken as they are.
///
/// @param threads  that may work on the call: its parts are theirs, and run one after another here.
/// @param bytes    that are read before each run, as those of its neighbours in a graph would be, LibraryWays::kManyBytes at
///                 most; then what is not fixed.
/// @throws CompileError when the library refuses the call.
std::vector<double> seconds_of_ways(const LibraryCall& call,
                                    std::span<const LibraryOperand> operands, int threads,
                                    std::int64_t bytes);

/// The way that takes the least of them.
std::uint32_t fastest_way(const LibraryCall& call, std::span<const LibraryOperand> operands,
                          int threads, std::int64_t bytes);

}  // namespace heddle::jit
