// Where large buffers lie between those that are there together with them.
#pragma once

#include <cstdint>
#include <span>

namespace heddle::memory {

/// Bytes of an arena that are in use in the stages [first, last].
struct Placement {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;

  std::int64_t end() const { return offset + bytes; }
  bool meets(const Placement& other) const { return first <= other.last && other.first <= last; }
};

/// Whether b, which is written after the last use of a, may be written from its first byte on as far as a was read from its first byte on:
/// they share no bytes, or b begins and ends no later than a. Both grow evenly.
bool may_follow(const Placement& a, const Placement& b);

/// Moves large items within what is free around them while they are there, below `peak`, so that what is written soon after others were
/// read may follow them as often as can be. Then the steps between may take turns, piece by piece (engine/chains.h), which
/// else wait for each other: bytes are used again.
///
///   stages  0 1 2 3        bytes [0, 4) of the item of stages 0 to 1, [4, 10) of that of 1 to 2, of whose successor,
///           a a            of stages 2 to 3, 3 bytes are needed: at [1, 4) it would overwrite what stage 1 still reads
///             b b          while stage 2 writes its first piece, at [0, 3) it does not
///               c c
void slide(std::span<Placement> items, std::int64_t peak);

}  // namespace heddle::memory
