// Runs nests statement by statement on the host: what both emitters must agree with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "jit/nest.h"

namespace heddle::test {

/// Memory of one global buffer: `count` elements may be touched.
struct InterpreterBuffer {
  void* data = nullptr;
  std::int64_t count = 0;
};

/// Runs every parallel iteration of `nest`, in order or backwards. Returns the status word: 0, or the first
/// check that failed. Throws InternalError on an access outside a buffer.
std::int32_t interpret(const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                       std::span<const std::int64_t> sizes, bool backwards = false);

}  // namespace heddle::test
