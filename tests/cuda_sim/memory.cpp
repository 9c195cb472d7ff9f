#include "tests/cuda_sim/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace heddle::sim {
namespace {

constexpr std::size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xb5;
/// Fresh floats of these bytes are NaN.
constexpr unsigned char kFresh = 0xff;
constexpr unsigned char kFreed = 0xfd;

bool intact(const unsigned char* guard) {
  return std::all_of(guard, guard + kGuard, [](unsigned char c) { return c == kGuardByte; });
}

}  // namespace

Memory& Memory::instance() {
  static Memory memory;
  return memory;
}

void* Memory::allocate(std::size_t bytes) {
  if (bytes > kCapacity - in_use_) return nullptr;
  const std::size_t rounded = (bytes + kGuard - 1) / kGuard * kGuard;
  auto* block = static_cast<unsigned char*>(std::aligned_alloc(kGuard, rounded + 2 * kGuard));
  if (block == nullptr) return nullptr;
  unsigned char* begin = block + kGuard;
  std::memset(block, kGuardByte, rounded + 2 * kGuard);
  std::memset(begin, kFresh, bytes);
  allocations_[begin] = bytes;
  in_use_ += bytes;
  return begin;
}

bool Memory::release(void* pointer) {
  const auto found = allocations_.find(static_cast<unsigned char*>(pointer));
  if (found == allocations_.end()) return false;
  std::memset(pointer, kFreed, found->second);
  in_use_ -= found->second;
  allocations_.erase(found);
  std::free(static_cast<unsigned char*>(pointer) - kGuard);
  return true;
}

bool Memory::holds(const void* pointer, std::size_t bytes) const {
  const auto* at = static_cast<const unsigned char*>(pointer);
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return false;
  const auto& [begin, size] = *--next;
  return at + bytes <= begin + size;
}

std::string Memory::damage() const {
  for (const auto& [begin, bytes] : allocations_) {
    if (intact(begin - kGuard) && intact(begin + bytes)) continue;
    return "a write outside an allocation of " + std::to_string(bytes) + " bytes";
  }
  return {};
}

}  // namespace heddle::sim
