// The simulated device's memory: the host's, with guards around each allocation.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace heddle::sim {

class Memory {
 public:
  static Memory& instance();

  /// 256-aligned and poisoned; null beyond the device's capacity.
  void* allocate(std::size_t bytes);
  /// False: no allocation begins there.
  bool release(void* pointer);
  /// Whether `bytes` from `pointer` on lie in one allocation.
  bool holds(const void* pointer, std::size_t bytes) const;
  /// What was written around an allocation that should not have been; empty if nothing.
  std::string damage() const;
  std::size_t in_use() const { return in_use_; }

  static constexpr std::size_t kCapacity = std::size_t{8} << 30;

 private:
  std::map<const unsigned char*, std::size_t> allocations_;
  std::size_t in_use_ = 0;
};

}  // namespace heddle::sim
