// Tiles for kernels that read across the order in which they write.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/lower/domain.h"

namespace heddle::jit {

/// Loops for a body that loads along one of the outer axes what it stores along the innermost: square tiles,
/// loaded along the one, turned into a local buffer and worked through along the other, so that memory is touched
/// in whole cache lines both ways. Does nothing and returns false when `body` is no such thing.
bool wrap_transposed(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes);

/// The same for CUDA: a block of threads has one tile, in shared memory, and a thread of it some of its elements.
bool wrap_transposed_blocks(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes);

/// Whether some load of `body` goes on by more than `step` elements, forwards or back, from one index of `lane` to the next.
bool loads_across(const Block& body, Symbol lane, std::int64_t step);

}  // namespace heddle::jit
