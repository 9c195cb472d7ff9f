// Host memory for arenas and outputs: 64-aligned blocks, cached by size class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace heddle::memory {

/// A thread-safe caching allocator with exact accounting. Blocks are 64-aligned; sizes are rounded up to
/// a class (four classes a power of two), freed blocks are kept up to the cache limit.
class CachingAllocator {
 public:
  static CachingAllocator& host();

  /// @throws OutOfMemory naming the bytes, what is in use and the cap.
  void* allocate(std::size_t bytes);
  void release(void* block) noexcept;
  /// Gives room for `bytes` in place of `block`, which may be null. What it held is lost, but not its pages: of a
  /// large block only what is new is fetched from the system and cleared, at its first use.
  /// @return the block, elsewhere in most cases.
  /// @throws OutOfMemory as allocate() does, when `block` was released.
  void* grow(void* block, std::size_t bytes);
  /// Gives cached blocks back to the system. @return their bytes
  std::size_t trim() noexcept;
  /// Hard cap on bytes in use; 0: none. Cached blocks go before both together are more.
  void set_cap(std::size_t bytes);
  /// The same while what it returns is there, in place of that one: the smallest of those that are held.
  std::shared_ptr<const void> hold_cap(std::size_t bytes);

  struct Stats {
    std::size_t in_use_bytes = 0;
    std::size_t cached_bytes = 0;
    std::size_t peak_bytes = 0;  ///< of bytes in use
    std::size_t cap_bytes = 0;   ///< 0: none
    /// Calls of allocate(), and of grow() that needed another class, but for those that the cap refused.
    std::uint64_t allocations = 0;
    std::uint64_t system_allocations = 0;  ///< of those, served by the system
  };
  Stats stats() const;

 private:
  CachingAllocator();
  struct Impl;
  Impl* impl_;
};

}  // namespace heddle::memory
