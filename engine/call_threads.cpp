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

std::future<CallThreads::Results> CallThreads::submit(Call call) {
  std::future<Results> result = call.get_future();
  queue({std::move(call), nullptr});
  return result;
}

void CallThreads::submit(Call call, Done done) { queue({std::move(call), std::move(done)}); }

void CallThreads::queue(Queued queued) {
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
    queue_.push_back(std::move(queued));
  }
  changed_.notify_one();
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
      Queued next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::future<Results> result;
      if (next.done) result = next.call.get_future();
      next.call();
      if (next.done) next.done(std::move(result));
    }
    lock.lock();
  }
}

}  // namespace heddle::engine
