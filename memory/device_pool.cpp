#include "memory/device_pool.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "heddle/error.h"

namespace heddle::memory {

namespace {

constexpr std::size_t kSmall = std::size_t{1} << 20;
/// A cached block may be larger than what is asked for by this share of it.
constexpr std::size_t kMaxWaste = 4;

std::size_t rounded(std::size_t bytes) {
  const std::size_t unit = bytes <= kSmall ? 512 : std::size_t{64} << 10;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

DevicePool::DevicePool(device::Device& device, Kind kind) : device_(device), kind_(kind) {}

DevicePool::~DevicePool() { trim_locked(); }

void DevicePool::give_to_device(void* block) noexcept {
  kind_ == Kind::Device ? device_.release(block) : device_.release_pinned(block);
}

void* DevicePool::take_cached(std::size_t bytes) {
  const auto found = cached_.lower_bound(bytes);
  if (found == cached_.end() || found->first > bytes + bytes / kMaxWaste) return nullptr;
  void* block = found->second;
  used_[block] = found->first;
  stats_.cached_bytes -= found->first;
  stats_.in_use_bytes += found->first;
  cached_.erase(found);
  return block;
}

void* DevicePool::from_device(std::size_t bytes) {
  if (is_beyond_cap(bytes)) trim_locked();
  if (is_beyond_cap(bytes))
    throw OutOfMemory(
        {.what = kind_ == Kind::Device ? "device memory" : "pinned memory",
         .where = device_.properties().name,
         .expected = fmt::format("at most {} bytes", caps_.get()),
         .got = fmt::format("a request for {} bytes, {} in use", bytes, stats_.in_use_bytes)});
  const auto request = [&] {
    return kind_ == Kind::Device ? device_.allocate(bytes) : device_.allocate_pinned(bytes);
  };
  void* block = nullptr;
  try {
    block = request();
  } catch (const OutOfMemory&) {
    if (cached_.empty()) throw;
    trim_locked();
    block = request();
  }
  used_[block] = bytes;
  stats_.in_use_bytes += bytes;
  ++stats_.device_allocations;
  return block;
}

void* DevicePool::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = rounded(bytes);
  const std::scoped_lock lock(mutex_);
  void* block = take_cached(size);
  if (block == nullptr) block = from_device(size);
  ++stats_.allocations;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
  return block;
}

void DevicePool::release(void* block) noexcept {
  if (block == nullptr) return;
  const std::scoped_lock lock(mutex_);
  const auto found = used_.find(block);
  if (found == used_.end()) return;
  stats_.in_use_bytes -= found->second;
  stats_.cached_bytes += found->second;
  cached_.emplace(found->second, block);
  used_.erase(found);
  keep_cap();
}

std::size_t DevicePool::trim_locked() noexcept {
  for (const auto& [bytes, block] : cached_) give_to_device(block);
  cached_.clear();
  return std::exchange(stats_.cached_bytes, 0);
}

std::size_t DevicePool::trim() noexcept {
  const std::scoped_lock lock(mutex_);
  return trim_locked();
}

/// Where a cap was set that is lower than what is held.
void DevicePool::keep_cap() noexcept {
  if (is_beyond_cap(0)) trim_locked();
}

void DevicePool::set_cap(std::size_t bytes) {
  caps_.set(bytes);
  const std::scoped_lock lock(mutex_);
  keep_cap();
}

std::shared_ptr<const void> DevicePool::hold_cap(std::size_t bytes) {
  auto held = caps_.hold(bytes);
  const std::scoped_lock lock(mutex_);
  keep_cap();
  return held;
}

DevicePool::Stats DevicePool::stats() const {
  const std::scoped_lock lock(mutex_);
  Stats stats = stats_;
  stats.cap_bytes = caps_.get();
  return stats;
}

}  // namespace heddle::memory
