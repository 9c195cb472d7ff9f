// Races inside a launch: who touched each word of memory last, and in which epoch of its block; what fences and atomic
// updates order.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/cuda_sim/memory.h"

namespace heddle::sim {

/// A thread of a launch at a time: how many barriers of its block it has passed, how many fences of its own, and how often it has
/// arrived where not the whole block waits.
struct Moment {
  std::uint32_t thread = 0;  ///< of the launch, from 1 on; 0: nobody
  std::uint32_t epoch = 0;
  std::uint32_t fences = 0;
  std::uint32_t arrivals = 0;
  bool is_copy =
      false;  ///< by a copy that goes on beside the thread: `arrivals` are those that hang on its copies
};

/// The accesses of one launch, word by word; byte by byte where narrower ones were seen.
///
/// Two accesses conflict when one is a write, or when one is atomic and the other is not. Conflicting accesses of
/// two threads have to be in different epochs of one block, or one arrived at a barrier of its own (an mbarrier, or a named one of some
/// threads) after its access, and the other waited there before.
///
/// Blocks of a launch are ordered by what one hands to another (PTX ISA, "Memory Consistency Model", release and acquire
/// patterns): a thread's fence, then its atomic update of a word; a thread of the other block updates the word later,
/// and then has a fence. What comes before the first fence (in that thread, and in its block before the last barrier that
/// it passed) comes before what follows the second one (in that thread, and in its block after the next barrier).
class Races {
 public:
  /// A launch begins, with blocks of so many threads.
  void begin(std::uint32_t threads);
  /// A block begins.
  void begin_block();
  /// Shared memory is another one for each block.
  void begin_block(const unsigned char* shared, std::size_t bytes);

  /// Notes an access. @return what it races with, in words; empty: nothing.
  std::string access(const void* address, std::size_t bytes, Access kind, Moment now);
  /// The thread's fence, the `now.fences`-th (from 1 on).
  void fence(Moment now);
  /// The block that runs passes a barrier.
  void barrier();

  /// A thread of the block that runs sets out for a barrier that not the whole block waits at, or its copies do, of which the thread itself
  /// knows nothing. @return what is known by then: how often each thread had set out, and then the same of threads' copies.
  std::vector<std::uint32_t> set_out(std::uint32_t thread, bool copies);
  /// Such a thread arrives at `gate`; all have arrived that are to; a thread has waited for that.
  void arrive(const void* gate, const std::vector<std::uint32_t>& known);
  void complete(const void* gate) { gates_[gate].completed = gates_[gate].arrived; }
  void acquire(const void* gate, std::uint32_t thread);
  /// How often a thread of the block that runs has set out so far.
  std::uint32_t arrivals(std::uint32_t thread) const {
    return seen_.empty() ? 0 : seen_[thread][thread];
  }
  /// The same of its copies.
  std::uint32_t copies_arrived(std::uint32_t thread) const {
    return copies_.empty() ? 0 : copies_[thread];
  }
  /// Where in what is known a moment's arrivals are counted.
  std::size_t place_of(const Moment& moment) const {
    return (moment.thread - 1) % threads_ + (moment.is_copy ? threads_ : 0);
  }
  /// What a thread knows of that, of itself and others; empty: nobody ever did.
  std::vector<std::uint32_t> seen(std::uint32_t thread) const {
    return seen_.empty() ? std::vector<std::uint32_t>() : seen_[thread];
  }

  static constexpr std::size_t kChunk = 64;

 private:
  /// Two threads of one block that touched the memory last, in the same epoch; and one of an earlier block, which is
  /// not known to be ordered before these, or several.
  struct Touches {
    Moment first;
    Moment second;
    Moment earlier;
    bool several = false;
  };
  /// What is known to have happened, by thread of another block: all of its block before that moment's epoch, and
  /// its own before that fence.
  using Known = std::map<std::uint32_t, Moment>;
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
  bool is_ordered(const Moment& earlier, const Moment& now) const;
  bool is_known(const Known& known, const Moment& earlier) const;
  /// An atomic update hands on what the thread has released, and gets what others have.
  void hand_over(std::uintptr_t word, std::uint32_t thread);
  std::uint32_t block_of(std::uint32_t thread) const { return (thread - 1) / threads_; }
  std::uint32_t warpgroup_of(std::uint32_t thread) const;
  std::string name_of(std::uint32_t thread) const;

  /// Where some threads of the block meet: by thread, how often it had set out, as far as those know that arrived.
  struct Gate {
    std::vector<std::uint32_t> arrived;
    std::vector<std::uint32_t> completed;  ///< of the last phase that ended
  };

  std::unordered_map<std::uintptr_t, Chunk> chunks_;
  std::uintptr_t last_address_ = 0;
  Chunk* last_ = nullptr;
  std::uint32_t launch_ = 0;
  std::uint32_t threads_ = 1;
  std::unordered_map<std::uintptr_t, Known> handed_;   ///< by word that is updated atomically
  Known known_;                                        ///< to the block that runs
  std::unordered_map<std::uint32_t, Known> acquired_;  ///< by thread, since the last barrier
  std::unordered_map<std::uint32_t, Known> pending_;   ///< by thread, until its next fence
  std::unordered_map<std::uint32_t, Known> released_;  ///< by thread, at its last fence
  std::map<const void*, Gate> gates_;
  std::vector<std::vector<std::uint32_t>>
      seen_;                           ///< by thread of the block: set_out(); empty: none ever did
  std::vector<std::uint32_t> copies_;  ///< by thread, how often they set out
};

}  // namespace heddle::sim
