// Steps one after another, each of which reads what the one before it wrote, piece by piece: a piece of each in turn, so that what
// lies between them stays in the second-level caches, where all of it would go through memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/bound.h"

namespace heddle::engine {

/// Cuts stages of one step into stages of some of its iterations, in another order, where
///   - an intermediate between two such steps is larger than a few times the caches of the plan's threads together, and
///   - the pieces' footprints (jit/footprint.h) say that few of it are waited for at a time.
/// Each worker has pieces of its own share of a step's iterations, so that what it wrote is in its own cache when it reads that.
/// A piece runs after all pieces of earlier steps that write what it touches or touch what it writes: bytes of an arena that
/// several buffers share in turn count too, so that the plan of memory holds as it is. Constants that each piece reads again
/// must be small beside it. Plans on the CPU without donated arguments only.
///
/// @param cache_bytes  of a thread's second-level cache.
void tile_chains(BoundSteps& plan, std::int64_t cache_bytes);

/// Stages one after another that may be cut together.
struct ChainValue {
  std::size_t first = 0;        ///< stage
  std::size_t stages = 0;       ///< at least 1
  std::int64_t kept_bytes = 0;  ///< between them, that need not go through memory
};
/// Of chains, some of which share stages, those that share none and keep the most together: their positions, in the order of their
/// stages.
std::vector<std::size_t> best_chains(std::span<const ChainValue> chains);

/// Proves that the stages run each iteration once, and none before a piece of an earlier step that it conflicts with.
/// @throws InternalError.
void check_chains(const BoundSteps& plan);

}  // namespace heddle::engine
