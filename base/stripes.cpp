#include "base/stripes.h"

namespace heddle::base {

std::size_t next_thread_stripe() noexcept {
  static std::atomic<std::size_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed) % kStripes;
}

}  // namespace heddle::base
