// What follows a convolution, on its result while that lies in the cache.
#pragma once

#include <cstdint>
#include <span>

#include "jit/program.h"

namespace heddle::jit::onednn {

/// An operation with its operand: of Scale and Shift one value a channel, of Add one an element.
struct TailOp {
  EpilogueOp op;
  const float* operand = nullptr;
};

/// Runs `ops` in order on `values` [positions, channels], `step` elements from a position to the next; an operand of Add is laid out
/// like them.
void run_tail(std::span<const TailOp> ops, float* values, std::int64_t positions,
              std::int64_t channels, std::int64_t step);

/// Channels that lie together in memory that is blocked by channels.
inline constexpr std::int64_t kChannelBlock = 16;

/// Brings `blocked` [channels / 16, positions, 16] into `values` [positions, channels], where not null after adding
/// `added`, which is laid out like `values` and may be the same memory; then runs `ops`.
void unblock(const float* blocked, const float* added, std::span<const TailOp> ops, float* values,
             std::int64_t positions, std::int64_t channels);

}  // namespace heddle::jit::onednn
