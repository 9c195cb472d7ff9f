// Caps on the bytes of a pool that several may give.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>

namespace heddle::memory {

/// The smallest of those that are held, else the one that is set. 0 is none. Threads: any.
class Caps {
 public:
  std::size_t get() const { return cap_.load(std::memory_order_relaxed); }
  void set(std::size_t bytes);
  /// @return holds the cap until it goes, before this does; null for 0.
  std::shared_ptr<const void> hold(std::size_t bytes);

 private:
  void let_go(std::multiset<std::size_t>::iterator held);
  void choose() { cap_ = held_.empty() ? set_ : *held_.begin(); }

  std::mutex mutex_;
  std::size_t set_ = 0;              ///< under `mutex_`
  std::multiset<std::size_t> held_;  ///< under `mutex_`
  std::atomic<std::size_t> cap_{0};
};

}  // namespace heddle::memory
