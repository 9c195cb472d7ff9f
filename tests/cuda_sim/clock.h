// Vector clocks: which operations of which streams are known to be done.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heddle::sim {

/// An operation: the `time`-th of the stream in `slot`. 0 is none.
struct Stamp {
  std::uint64_t bits = 0;

  Stamp() = default;
  Stamp(std::uint32_t slot, std::uint64_t time) : bits(std::uint64_t{slot} << 40 | time) {}
  std::uint32_t slot() const { return static_cast<std::uint32_t>(bits >> 40); }
  std::uint64_t time() const { return bits & ((std::uint64_t{1} << 40) - 1); }
  explicit operator bool() const { return bits != 0; }
  friend bool operator==(Stamp, Stamp) = default;
};

/// By stream slot, how many of its operations are done.
class VectorClock {
 public:
  std::uint64_t at(std::uint32_t slot) const { return slot < times_.size() ? times_[slot] : 0; }
  void set(std::uint32_t slot, std::uint64_t time) {
    if (slot >= times_.size()) times_.resize(slot + 1, 0);
    times_[slot] = time;
  }
  void join(const VectorClock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size(), 0);
    for (std::size_t k = 0; k < other.times_.size(); ++k)
      times_[k] = std::max(times_[k], other.times_[k]);
  }
  bool knows(Stamp stamp) const { return stamp.time() <= at(stamp.slot()); }

 private:
  std::vector<std::uint64_t> times_;
};

}  // namespace heddle::sim
