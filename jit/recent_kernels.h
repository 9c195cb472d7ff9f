// Compiled kernels by what they were made of, for whoever asks for the same.
#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace heddle::jit {

/// Holds all kernels that are in use or being made, and those used last of the others: a process that loads and drops models, or
/// compiles for sizes that come often, does not grow with each. Threads: any.
template <typename Kernel>
class RecentKernels {
 public:
  using Pointer = std::shared_ptr<const Kernel>;
  using Future = std::shared_future<Pointer>;

  /// Kernels that nobody else holds, at most.
  static constexpr std::size_t kMostIdle = 2048;

  explicit RecentKernels(std::size_t most_idle = kMostIdle) : most_idle_(most_idle) {}

  struct Found {
    Future kernel;
    bool is_new = false;  ///< it is that of `promise`, which the caller keeps, or forgets
  };
  Found find_or_add(const std::string& key, std::promise<Pointer>& promise) {
    std::list<Future> dropped;  // destroyed when others may go on
    const std::lock_guard lock(mutex_);
    if (const auto known = entries_.find(key); known != entries_.end()) {
      by_use_.splice(by_use_.begin(), by_use_, known->second.use);
      return {known->second.kernel, false};
    }
    if (entries_.size() >= next_look_) dropped = take_idle();
    const auto added = entries_.try_emplace(key, Entry{promise.get_future().share(), {}}).first;
    by_use_.push_front(&added->first);
    added->second.use = by_use_.begin();
    return {added->second.kernel, true};
  }

  /// Of a kernel that could not be made: who asks next tries anew.
  void forget(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto known = entries_.find(key);
    if (known == entries_.end()) return;
    by_use_.erase(known->second.use);
    entries_.erase(known);
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    Future kernel;
    std::list<const std::string*>::iterator use;
  };

  /// Made, and held by nobody else. What failed is forgotten by who made it.
  static bool is_idle(const Future& kernel) try {
    return kernel.wait_for(std::chrono::seconds(0)) == std::future_status::ready &&
           kernel.get().use_count() == 1;
  } catch (...) {
    return false;
  }

  /// Under `mutex_`. Looks at all of them once for many that are added.
  std::list<Future> take_idle() {
    std::list<Future> taken;
    std::size_t idle = 0;
    for (auto use = by_use_.begin(); use != by_use_.end();) {
      const auto entry = entries_.find(**use);
      if (is_idle(entry->second.kernel) && ++idle > most_idle_) {
        taken.push_back(std::move(entry->second.kernel));
        use = by_use_.erase(use);
        entries_.erase(entry);
      } else {
        ++use;
      }
    }
    next_look_ = entries_.size() + most_idle_;
    return taken;
  }

  const std::size_t most_idle_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<const std::string*> by_use_;  ///< keys, those asked for last in front
  std::size_t next_look_ = most_idle_;    ///< entries there are when idle ones are looked for
};

}  // namespace heddle::jit
