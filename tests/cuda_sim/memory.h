// The simulated device's memory, and pinned memory of the host: the host's, with guards around each
// allocation, and for the device's a record of who touched what last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_sim/clock.h"

namespace heddle::sim {

enum class Access : std::uint8_t { Read, Write, Atomic };

/// The operation that touches memory now.
struct Toucher {
  Stamp stamp;
  const VectorClock* known = nullptr;  ///< what it comes after
};

class Memory {
 public:
  static Memory& instance();

  /// 256-aligned and poisoned; null beyond the device's capacity.
  void* allocate(std::size_t bytes);
  /// Poisons it; what is allocated next lies elsewhere, so that a stale address is in no allocation. False: none begins
  /// there.
  bool release(void* pointer);
  void* allocate_pinned(std::size_t bytes);
  bool release_pinned(void* pointer);

  /// Whether `bytes` from `pointer` on lie in one allocation of the device.
  bool holds(const void* pointer, std::size_t bytes) const;
  bool holds_pinned(const void* pointer, std::size_t bytes) const;
  /// The begin and size of the device's or a pinned allocation that begins at `pointer`; 0 bytes: none.
  std::size_t size_of(const void* pointer) const;

  /// What is wrong with this access, in words; empty if nothing: it lies in one live allocation, and every
  /// earlier access that it conflicts with is known to be done. Conflicts: a write with anything, an atomic
  /// update with a read.
  std::string access(const void* pointer, std::size_t bytes, Access kind, const Toucher& toucher);
  /// What was written around an allocation that should not have been; empty if nothing.
  std::string damage() const;

  std::size_t in_use() const { return in_use_; }
  /// The most in use at a time since this was last called.
  std::size_t take_peak() { return std::exchange(peak_, in_use_); }
  std::size_t live() const { return allocations_.size() + pinned_.size(); }
  std::size_t live_pinned() const { return pinned_.size(); }
  /// Forgets all allocations; those of a context that is gone.
  void reset();

  static constexpr std::size_t kCapacity = std::size_t{8} << 30;
  /// Bytes that are told apart; buffers of one allocation that are used at the same time lie further apart.
  static constexpr std::size_t kGranule = 64;

 private:
  struct Granule {
    Stamp writer;
    std::array<Stamp, 3> readers;
    std::array<Stamp, 2> atomics;
  };
  struct Allocation {
    std::size_t bytes = 0;
    std::vector<Granule> granules;  ///< made at the first access
  };
  using Allocations = std::map<const unsigned char*, Allocation>;

  Allocation* find(const unsigned char* at);
  /// Gives memory back to the host once enough was freed after it.
  void hold_back(const unsigned char* begin, std::size_t bytes);
  std::string describe(const unsigned char* at, std::size_t bytes, Access kind) const;

  Allocations allocations_;
  std::map<const unsigned char*, std::size_t> pinned_;
  std::deque<std::pair<const unsigned char*, std::size_t>>
      freed_;  ///< begins, and bytes with their guards
  std::size_t freed_bytes_ = 0;
  Allocations::iterator last_ = allocations_.end();
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace heddle::sim
