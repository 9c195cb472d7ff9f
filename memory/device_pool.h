// Memory of a device for arenas, tensors and staging: blocks kept for the next request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "device/device.h"
#include "memory/caps.h"

namespace heddle::memory {

/// A caching allocator over one device, with a hard cap and exact accounting. A block that is given back
/// may be handed out at once: the host must have waited for the work that used it.
///
/// Threads: any.
class DevicePool {
 public:
  enum class Kind : std::uint8_t { Device, Pinned };
  DevicePool(device::Device& device, Kind kind);
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  /// 256-aligned; null for 0 bytes. Sizes are rounded up to 512, beyond 1 MiB to 64 KiB.
  /// @throws OutOfMemory naming the bytes, what is in use and the cap, after a trim; what the device
  /// throws.
  void* allocate(std::size_t bytes);
  /// Null is nothing.
  void release(void* block) noexcept;
  /// Gives blocks that are not in use back to the device. @return their bytes
  std::size_t trim() noexcept;
  /// Hard cap on bytes held, cached ones included; 0: none.
  void set_cap(std::size_t bytes);
  /// The same while what it returns is there, in place of that one: the smallest of those that are held.
  std::shared_ptr<const void> hold_cap(std::size_t bytes);

  struct Stats {
    std::size_t in_use_bytes = 0;
    std::size_t cached_bytes = 0;
    std::size_t peak_bytes = 0;            ///< of bytes in use
    std::size_t cap_bytes = 0;             ///< 0: none
    std::uint64_t allocations = 0;         ///< calls of allocate() that gave memory
    std::uint64_t device_allocations = 0;  ///< of those, served by the device
  };
  Stats stats() const;

 private:
  void* take_cached(std::size_t bytes);
  void* from_device(std::size_t bytes);
  std::size_t trim_locked() noexcept;
  /// Whether so many bytes more are more than the cap allows.
  bool is_beyond_cap(std::size_t more) const {
    const std::size_t cap = caps_.get();
    return cap != 0 && stats_.in_use_bytes + stats_.cached_bytes + more > cap;
  }
  void keep_cap() noexcept;
  void give_to_device(void* block) noexcept;

  device::Device& device_;
  const Kind kind_;
  mutable std::mutex mutex_;
  std::map<void*, std::size_t> used_;
  std::multimap<std::size_t, void*> cached_;
  Caps caps_;
  Stats stats_;
};

/// A block of a pool, given back with its owner.
class PoolBlock {
 public:
  PoolBlock() = default;
  PoolBlock(DevicePool& pool, std::size_t bytes)
      : pool_(&pool), memory_(pool.allocate(bytes)), bytes_(bytes) {}
  ~PoolBlock() {
    if (pool_ != nullptr) pool_->release(memory_);
  }
  PoolBlock(PoolBlock&& other) noexcept { swap(other); }
  PoolBlock& operator=(PoolBlock&& other) noexcept {
    PoolBlock taken(std::move(other));
    swap(taken);
    return *this;
  }

  char* get() const { return static_cast<char*>(memory_); }
  std::size_t bytes() const { return bytes_; }
  /// Makes room for `bytes`; what was in it is lost when it grows.
  void reserve(DevicePool& pool, std::size_t bytes) {
    if (bytes <= bytes_) return;
    *this = PoolBlock();
    *this = PoolBlock(pool, bytes);
  }

 private:
  void swap(PoolBlock& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }

  DevicePool* pool_ = nullptr;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace heddle::memory
