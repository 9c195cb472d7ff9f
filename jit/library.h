// Library kernels (oneDNN on the CPU): which calls one can serve, and a call bound to sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "jit/footprint.h"
#include "jit/program.h"

namespace heddle::jit {

/// What channels of x, and of the result, of a convolution come in multiples of that is computed in tiles by a kernel of ours, which needs
/// vectors of so many bytes at least.
inline constexpr std::int64_t kTiledChannels = 16;
inline constexpr std::int64_t kTiledResults = 8;
inline constexpr std::int64_t kTiledVectorBytes = 32;

/// One of several ways in which a call can be computed.
struct LibraryChoice {
  std::span<const std::string> ways;  ///< their names, those of all such calls
  std::vector<std::int64_t> sizes;    ///< what the fastest depends on
  std::uint32_t way = 0;              ///< the one taken
  bool measured = false;              ///< it was found to be the fastest, not just expected to be
};

/// A library call for concrete sizes. run() may be called by many threads at once.
class BoundLibraryCall {
 public:
  virtual ~BoundLibraryCall() = default;
  /// Makes code that a first run() would make: of one for all iterations, and of those for some.
  /// @throws CompileError
  virtual void make_ready(bool /*whole*/, bool /*in_parts*/) const {}
  /// Iterations [begin, end) of extent(): the library works single-threaded on its part, and all of them may be
  /// one call of it.
  /// `buffers`: inputs, then outputs, row-major. `scratch`: 64-aligned, this thread's own.
  virtual void run(void* const* buffers, std::int64_t begin, std::int64_t end,
                   void* scratch) const = 0;
  virtual std::int64_t extent() const { return 1; }
  /// Bytes of each buffer that iterations [begin, end) touch, at most; nothing: maybe all of them.
  virtual std::optional<std::vector<Touched>> touched(std::int64_t /*begin*/,
                                                      std::int64_t /*end*/) const {
    return {};
  }
  virtual std::int64_t scratch_bytes() const { return 0; }
  /// Of memory that is its own, about.
  virtual std::int64_t held_bytes() const { return 0; }
  /// Null: there is one way.
  virtual const LibraryChoice* choice() const { return nullptr; }
};

/// Concrete sizes and, where it never changes, the address of one operand of a call.
struct LibraryOperand {
  std::vector<std::int64_t> sizes;
  const void* fixed = nullptr;  ///< a parameter or constant: may be packed once, here
  /// The same bytes where they came from, which may be no address for their dtype; null: not known.
  const void* origin = nullptr;
};

/// Whether a library of this build has the kernel `name` for `node`.
bool library_serves(std::string_view name, const ir::Node& node);

/// Whether convolutions with the channels in the last dimension suit the libraries of this build better.
bool library_prefers_channels_last();

class ConstantCache;
class LibraryVerdicts;

/// What was found out about fixed operands by reading them, for as long as these live. Threads: any.
class FixedFacts {
 public:
  /// What `read` says of the bytes at `data`, which is asked once.
  std::uint8_t of(const void* data, const std::function<std::uint8_t()>& read);

 private:
  std::mutex mutex_;
  std::map<const void*, std::uint8_t> known_;
};

/// What chooses among the ways of a call.
struct LibraryWays {
  const LibraryVerdicts* verdicts = nullptr;  ///< null: a model of costs alone
  std::optional<std::uint32_t> way{};         ///< this one, where there are several
  ConstantCache* constants = nullptr;         ///< where packed operands are kept; null: nowhere
  FixedFacts* facts = nullptr;                ///< of its operands; null: they are read each time
  std::int64_t times =
      1;  ///< the call is for a part of a batch, one of so many, and takes the way of a call for all of it
  std::int64_t bytes = kManyBytes;  ///< read between two runs of the call: a graph's parameters

  static constexpr std::int64_t kManyBytes = std::int64_t{1} << 26;  ///< more than caches hold
};

/// `operands`: inputs, then outputs. `threads` may work on it at a time.
/// @throws CompileError when the library refuses the call.
std::unique_ptr<BoundLibraryCall> bind_library_call(const LibraryCall& call,
                                                    std::span<const LibraryOperand> operands,
                                                    int threads, const LibraryWays& ways = {});

/// The library's version and what it takes the processor for, which measurements depend on; empty: this build has none.
std::string library_version();

}  // namespace heddle::jit
