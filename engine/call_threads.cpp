#include "engine/call_threads.h"

#include <system_error>
#include <utility>

namespace heddle::engine {

/// What threads share with their owner, and keep as long as they run.
struct CallThreads::State {
  struct Queued {
    Call call;
    Done done;  ///< null: nobody is told
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Queued> queue;  ///< under `mutex`
  std::size_t waiting = 0;   ///< threads without a call; under `mutex`
  bool stop = false;         ///< under `mutex`

  static void work(const std::shared_ptr<State>& state);
};

namespace {

/// Whose thread this is, as State; null: nobody's.
thread_local const void* owner = nullptr;

}  // namespace

CallThreads::CallThreads(std::size_t most) : most_(most), state_(std::make_shared<State>()) {}

CallThreads::~CallThreads() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  // A call may still submit others, and have a thread started for them.
  for (std::size_t k = 0;; ++k) {
    std::unique_lock lock(state_->mutex);
    if (k == threads_.size()) return;
    std::thread thread = std::move(threads_[k]);
    lock.unlock();
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();  // whoever is told of a call's end lets go of the last that holds the engine
    else
      thread.join();
  }
}

std::future<CallThreads::Results> CallThreads::submit(Call call) {
  std::future<Results> result = call.get_future();
  queue(std::move(call), nullptr);
  return result;
}

void CallThreads::submit(Call call, Done done) { queue(std::move(call), std::move(done)); }

void CallThreads::queue(Call call, Done done) {
  const bool is_nested = owner == state_.get();
  {
    const std::scoped_lock lock(state_->mutex);
    const bool all_busy = state_->waiting <= state_->queue.size();
    if (all_busy && (threads_.size() < most_ || is_nested)) {
      try {
        threads_.emplace_back([state = state_] { State::work(state); });
      } catch (const std::system_error&) {
        if (threads_.empty() || is_nested) throw;
      }
    }
    state_->queue.push_back({std::move(call), std::move(done)});
  }
  state_->changed.notify_one();
}

void CallThreads::State::work(const std::shared_ptr<State>& state) {
  owner = state.get();
  std::unique_lock lock(state->mutex);
  for (;;) {
    ++state->waiting;
    state->changed.wait(lock, [&] { return state->stop || !state->queue.empty(); });
    --state->waiting;
    if (state->queue.empty()) return;
    {
      Queued next = std::move(state->queue.front());
      state->queue.pop_front();
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
