// Races inside a launch: who touched each word of memory last, and in which epoch of its block.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "tests/cuda_sim/memory.h"

namespace heddle::sim {

/// A thread of a launch at a time: how many barriers of its block it has passed.
struct Moment {
  std::uint32_t thread = 0;  ///< of the launch, from 1 on; 0: nobody
  std::uint32_t epoch = 0;
};

/// The accesses of one launch, word by word; byte by byte where narrower ones were seen.
///
/// Two accesses conflict when one is a write, or when one is atomic and the other is not. Conflicting accesses of
/// two threads have to be in different epochs of one block: blocks of a launch are not ordered.
class Races {
 public:
  /// A launch begins, with blocks of so many threads.
  void begin(std::uint32_t threads);
  /// Shared memory is another one for each block.
  void begin_block(const unsigned char* shared, std::size_t bytes);

  /// Notes an access. @return what it races with, in words; empty: nothing.
  std::string access(const void* address, std::size_t bytes, Access kind, Moment now);

  static constexpr std::size_t kChunk = 64;

 private:
  /// Two threads of one block that touched the memory last, in the same epoch, and one of an earlier block.
  struct Touches {
    Moment first;
    std::uint32_t second = 0;
    std::uint32_t earlier_block = 0;
  };
  using Cell = std::array<Touches, 3>;  ///< by Access
  struct Chunk {
    std::uint32_t launch = 0;
    std::array<Cell, kChunk / 4> words{};
    std::unique_ptr<std::array<Cell, kChunk>>
        bytes{};  ///< in place of words, once a narrower access was seen
  };

  Chunk& chunk_at(std::uintptr_t address);
  static void narrow(Chunk& chunk);
  static Cell& cell_at(Chunk& chunk, std::uintptr_t address);
  /// The thread that the access conflicts with; 0: none.
  std::uint32_t conflict(const Cell& cell, Access kind, Moment now) const;
  void note(Touches& touches, Moment now) const;
  std::uint32_t block_of(std::uint32_t thread) const { return (thread - 1) / threads_; }
  std::string name_of(std::uint32_t thread) const;

  std::unordered_map<std::uintptr_t, Chunk> chunks_;
  std::uintptr_t last_address_ = 0;
  Chunk* last_ = nullptr;
  std::uint32_t launch_ = 0;
  std::uint32_t threads_ = 1;
};

}  // namespace heddle::sim
