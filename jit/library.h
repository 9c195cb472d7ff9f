// Library kernels (oneDNN on the CPU): which calls one can serve, and a call bound to sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// A library call for concrete sizes. Made off the hot path; run() may be called by many threads at once.
class BoundLibraryCall {
 public:
  virtual ~BoundLibraryCall() = default;
  /// Iterations [begin, end) of extent(): the library works single-threaded on its part.
  /// `buffers`: inputs, then outputs, row-major.
  virtual void run(void* const* buffers, std::int64_t begin, std::int64_t end,
                   void* scratch) const = 0;
  virtual std::int64_t extent() const { return 1; }
  virtual std::int64_t scratch_bytes() const { return 0; }
};

/// Whether a library of this build serves `node` through Lowering::library, and is expected to beat the nest.
bool library_serves(const ir::Node& node);

/// @throws CompileError when the library refuses the call; DTypeError for dtypes it does not take.
std::unique_ptr<BoundLibraryCall> bind_library_call(
    const LibraryCall& call, std::span<const std::vector<std::int64_t>> input_sizes,
    std::span<const std::vector<std::int64_t>> output_sizes);

}  // namespace heddle::jit
