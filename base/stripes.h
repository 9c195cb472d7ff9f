// What threads write at every call, apart: a cache line for each of a few of them, so that none waits for another's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::base {

/// How many cache lines threads are spread over.
inline constexpr std::size_t kStripes = 64;
/// Bytes that processors hand to each other as one.
inline constexpr std::size_t kLineBytes = 64;

/// The stripe of a thread that has none yet: in turn.
std::size_t next_thread_stripe() noexcept;

/// The calling thread's stripe, below kStripes.
inline std::size_t thread_stripe() noexcept {
  constinit thread_local std::size_t stripe = kStripes;
  if (stripe == kStripes) [[unlikely]]
    stripe = next_thread_stripe();
  return stripe;
}

/// A number that any number of threads add to at once.
class StripedCounter {
 public:
  void add(std::uint64_t count) noexcept {
    stripes_[thread_stripe()].count.fetch_add(count, std::memory_order_relaxed);
  }
  /// What was added by everything that happened before.
  std::uint64_t sum() const noexcept {
    std::uint64_t total = 0;
    for (const Stripe& stripe : stripes_) total += stripe.count.load(std::memory_order_relaxed);
    return total;
  }

 private:
  struct alignas(kLineBytes) Stripe {
    std::atomic<std::uint64_t> count{0};
  };
  std::array<Stripe, kStripes> stripes_{};
};

}  // namespace heddle::base
