// Large blocks of host memory: mappings of their own, aligned to a huge page.
#pragma once

#include <cstddef>

namespace heddle::memory {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Fresh memory of `bytes`, with room for a header of 64 bytes right before it. @return null: the system has none
char* map_block(std::size_t bytes) noexcept;

void unmap_block(char* block, std::size_t bytes) noexcept;

/// Moves the huge pages of `block` to the start of a larger one and unmaps the rest, its header included: pages that
/// were in use are neither cleared nor fetched again.
/// @return the larger block; null: the system has no room, and `block` is as it was.
/// Cost: some microseconds.
char* move_block(char* block, std::size_t bytes, std::size_t more_bytes) noexcept;

}  // namespace heddle::memory
