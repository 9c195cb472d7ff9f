// How many threads run a parallel iteration, where its vector loops are too short for a block of them.
#pragma once

#include <cstdint>
#include <optional>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// A block's threads in groups of `lanes`, a power of two: each group has a parallel iteration of its own.
struct RowLanes {
  std::uint32_t lanes = 1;
  bool reduces = false;  ///< lanes of a group exchange values: all groups of a block go on together
};

/// Nothing where the threads of a block have to share an iteration: loops are long, or of unknown length; what they keep
/// is in memory that the block shares, or that needs barriers; or there are too few iterations.
std::optional<RowLanes> row_lanes(const Nest& nest, std::uint32_t block_threads);

}  // namespace heddle::jit::cuda
