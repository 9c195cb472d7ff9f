#include "engine/call_threads.h"

#include <system_error>
#include <utility>

namespace heddle::engine {
namespace {

/// Whose thread this is; null: nobody's.
thread_local const CallThreads* owner = nullptr;

}  // namespace

CallThreads::~CallThreads() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  // A call may still submit others, and have a thread started for them.
  for (std::size_t k = 0;; ++k) {
    std::unique_lock lock(mutex_);
    if (k == threads_.size()) return;
    std::thread thread = std::move(threads_[k]);
    lock.unlock();
    thread.join();
  }
}

std::future<std::vector<Tensor>> CallThreads::submit(Call call) {
  std::future<std::vector<Tensor>> result = call.get_future();
  {
    const std::scoped_lock lock(mutex_);
    const bool all_busy = waiting_ <= queue_.size();
    if (all_busy && (threads_.size() < most_ || owner == this)) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        if (threads_.empty() || owner == this) throw;
      }
    }
    queue_.push_back(std::move(call));
  }
  changed_.notify_one();
  return result;
}

void CallThreads::work() {
  owner = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    ++waiting_;
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    --waiting_;
    if (queue_.empty()) return;
    {
      Call call = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      call();
    }
    lock.lock();
  }
}

}  // namespace heddle::engine
