// What the cost models of products and of attention have in common: rates of one multiprocessor in a cycle, and cycles that
// nothing hides. Those of datasheets for A100 and H100, taken alike for both.
#pragma once

namespace heddle::jit::cuda {

inline constexpr double kSharedBytes = 128;  ///< from and to shared memory
inline constexpr double kCacheBytes = 64;    ///< from the second-level cache
inline constexpr double kMemoryBytes = 20;   ///< its share of the device's memory

inline constexpr double kMemoryLatency = 800;  ///< from a block's start to its first products
inline constexpr double kElementLatency = 20;  ///< of a thread's element on its way out
/// From the last sum of a block that shares a tile to its totals: out to memory, the counter, and back.
inline constexpr double kJoinLatency = 2400;

}  // namespace heddle::jit::cuda
