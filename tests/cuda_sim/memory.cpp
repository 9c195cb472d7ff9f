#include "tests/cuda_sim/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace heddle::sim {
namespace {

constexpr std::size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xb5;
/// Fresh floats of these bytes are NaN.
constexpr unsigned char kFresh = 0xff;
constexpr unsigned char kFreed = 0xfd;
/// Bytes of freed memory of the device that nobody is given again yet.
constexpr std::size_t kHeldBack = std::size_t{16} << 20;

bool intact(const unsigned char* guard) {
  return std::all_of(guard, guard + kGuard, [](unsigned char c) { return c == kGuardByte; });
}

unsigned char* take(std::size_t bytes) {
  const std::size_t rounded = (bytes + kGuard - 1) / kGuard * kGuard;
  auto* block = static_cast<unsigned char*>(std::aligned_alloc(kGuard, rounded + 2 * kGuard));
  if (block == nullptr) return nullptr;
  std::memset(block, kGuardByte, kGuard);
  std::memset(block + kGuard, kFresh, bytes);
  std::memset(block + kGuard + bytes, kGuardByte, rounded - bytes + kGuard);
  return block + kGuard;
}

void give_back(const unsigned char* begin) {
  std::free(const_cast<unsigned char*>(begin) - kGuard);
}

const char* verb(Access kind) {
  return kind == Access::Read ? "reads" : kind == Access::Write ? "writes" : "updates";
}

std::string name_of(Stamp stamp) {
  return "operation " + std::to_string(stamp.time()) + " of stream " + std::to_string(stamp.slot());
}

/// Puts the toucher into a list, once, in place of one that it comes after or of the oldest.
template <std::size_t n>
void add(std::array<Stamp, n>& list, const Toucher& toucher) {
  if (std::ranges::find(list, toucher.stamp) != list.end()) return;
  for (Stamp& stamp : list) {
    if (!stamp || toucher.known->knows(stamp)) {
      stamp = toucher.stamp;
      return;
    }
  }
  list[0] = toucher.stamp;
}

/// The first of a list that the toucher does not come after.
template <std::size_t n>
Stamp unordered(const std::array<Stamp, n>& list, const Toucher& toucher) {
  for (const Stamp stamp : list)
    if (stamp && stamp != toucher.stamp && !toucher.known->knows(stamp)) return stamp;
  return {};
}

}  // namespace

Memory& Memory::instance() {
  // Never destroyed: a process may end with device memory in use, and what is known of it then is no leak.
  static Memory* const memory = new Memory;
  return *memory;
}

void* Memory::allocate(std::size_t bytes) {
  if (bytes > kCapacity - in_use_) return nullptr;
  unsigned char* begin = take(bytes);
  if (begin == nullptr) return nullptr;
  allocations_[begin].bytes = bytes;
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  return begin;
}

bool Memory::release(void* pointer) {
  const auto found = allocations_.find(static_cast<unsigned char*>(pointer));
  if (found == allocations_.end()) return false;
  in_use_ -= found->second.bytes;
  std::memset(pointer, kFreed, found->second.bytes);
  hold_back(found->first, found->second.bytes + 2 * kGuard);
  allocations_.erase(found);
  last_ = allocations_.end();
  return true;
}

void Memory::hold_back(const unsigned char* begin, std::size_t bytes) {
  freed_.emplace_back(begin, bytes);
  freed_bytes_ += bytes;
  while (freed_bytes_ > kHeldBack) {
    give_back(freed_.front().first);
    freed_bytes_ -= freed_.front().second;
    freed_.pop_front();
  }
}

void* Memory::allocate_pinned(std::size_t bytes) {
  unsigned char* begin = take(bytes);
  if (begin != nullptr) pinned_[begin] = bytes;
  return begin;
}

bool Memory::release_pinned(void* pointer) {
  const auto found = pinned_.find(static_cast<unsigned char*>(pointer));
  if (found == pinned_.end()) return false;
  give_back(found->first);
  pinned_.erase(found);
  return true;
}

void Memory::reset() {
  while (!allocations_.empty()) release(const_cast<unsigned char*>(allocations_.begin()->first));
  while (!pinned_.empty()) release_pinned(const_cast<unsigned char*>(pinned_.begin()->first));
}

Memory::Allocation* Memory::find(const unsigned char* at) {
  if (last_ != allocations_.end() && at >= last_->first && at < last_->first + last_->second.bytes)
    return &last_->second;
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return nullptr;
  --next;
  if (at >= next->first + next->second.bytes) return nullptr;
  last_ = next;
  return &next->second;
}

bool Memory::holds(const void* pointer, std::size_t bytes) const {
  const auto* at = static_cast<const unsigned char*>(pointer);
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return false;
  --next;
  return at + bytes <= next->first + next->second.bytes;
}

bool Memory::holds_pinned(const void* pointer, std::size_t bytes) const {
  const auto* at = static_cast<const unsigned char*>(pointer);
  auto next = pinned_.upper_bound(at);
  if (next == pinned_.begin()) return false;
  --next;
  return at + bytes <= next->first + next->second;
}

std::size_t Memory::size_of(const void* pointer) const {
  const auto* at = static_cast<const unsigned char*>(pointer);
  if (const auto found = allocations_.find(at); found != allocations_.end())
    return found->second.bytes;
  const auto found = pinned_.find(at);
  return found == pinned_.end() ? 0 : found->second;
}

std::string Memory::describe(const unsigned char* at, std::size_t bytes, Access kind) const {
  std::string text = std::string(verb(kind)) + " " + std::to_string(bytes) + " bytes ";
  auto next = allocations_.upper_bound(at);
  if (next != allocations_.begin()) {
    const auto& [begin, allocation] = *std::prev(next);
    const auto past = static_cast<std::size_t>(at - begin) + bytes - allocation.bytes;
    if (past < (1u << 20))
      return text + std::to_string(past) + " past the end of an allocation of " +
             std::to_string(allocation.bytes);
  }
  if (next != allocations_.end() && static_cast<std::size_t>(next->first - at) < (1u << 20))
    return text + std::to_string(next->first - at) + " before an allocation of " +
           std::to_string(next->second.bytes);
  return text + "in no allocation";
}

std::string Memory::access(const void* pointer, std::size_t bytes, Access kind,
                           const Toucher& toucher) {
  if (bytes == 0) return {};
  const auto* at = static_cast<const unsigned char*>(pointer);
  Allocation* allocation = find(at);
  // Words that kernels update on the host; what they read or write there is an accident of those who launch them.
  if (allocation == nullptr && kind == Access::Atomic && holds_pinned(at, bytes)) return {};
  // An atomic update of an element smaller than a word exchanges the word around it, and allocations of a real
  // driver end at a whole word. What it changes past the end shows up as damage().
  const bool in_word = kind == Access::Atomic && reinterpret_cast<std::uintptr_t>(at) % 4 == 0;
  if (allocation != nullptr && in_word && bytes == 4)
    bytes = std::min(bytes, static_cast<std::size_t>(last_->first + allocation->bytes - at));
  if (allocation == nullptr || at + bytes > last_->first + allocation->bytes)
    return describe(at, bytes, kind);
  if (allocation->granules.empty())
    allocation->granules.resize((allocation->bytes + kGranule - 1) / kGranule);
  const auto offset = static_cast<std::size_t>(at - last_->first);
  for (std::size_t k = offset / kGranule; k <= (offset + bytes - 1) / kGranule; ++k) {
    Granule& granule = allocation->granules[k];
    const bool mine = granule.writer == toucher.stamp;
    if (mine && kind != Access::Atomic) continue;
    if (kind == Access::Read && granule.readers[0] == toucher.stamp) continue;
    Stamp other;
    if (granule.writer && !mine && !toucher.known->knows(granule.writer)) other = granule.writer;
    if (!other && kind != Access::Atomic) other = unordered(granule.atomics, toucher);
    if (!other && kind != Access::Read) other = unordered(granule.readers, toucher);
    if (other)
      return std::string(verb(kind)) + " byte " + std::to_string(k * kGranule) +
             " and on of an allocation of " + std::to_string(allocation->bytes) + ", which " +
             name_of(other) + " touched: neither waits for the other";
    if (kind == Access::Read) {
      add(granule.readers, toucher);
    } else if (kind == Access::Atomic) {
      add(granule.atomics, toucher);
    } else {
      granule = Granule();
      granule.writer = toucher.stamp;
    }
  }
  return {};
}

std::string Memory::damage() const {
  for (const auto& [begin, allocation] : allocations_) {
    if (intact(begin - kGuard) && intact(begin + allocation.bytes)) continue;
    return "a write outside an allocation of " + std::to_string(allocation.bytes) + " bytes";
  }
  return {};
}

}  // namespace heddle::sim
