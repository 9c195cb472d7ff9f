// Calls that run on other threads and must end before what they use does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace heddle::engine {

/// Counts calls; waits for all of them when it is destroyed.
class PendingCalls {
 public:
  PendingCalls() = default;
  PendingCalls(const PendingCalls&) = delete;
  PendingCalls& operator=(const PendingCalls&) = delete;
  ~PendingCalls() {
    std::unique_lock lock(state_->mutex);
    state_->ended.wait(lock, [this] { return state_->count == 0; });
  }

  /// A call, from now until the last copy of the result goes.
  std::shared_ptr<void> begin() {
    auto ended = [state = state_](void*) {  // who waits may go while this is at work
      const std::scoped_lock lock(state->mutex);
      --state->count;
      state->ended.notify_all();
    };
    {
      const std::scoped_lock lock(state_->mutex);
      ++state_->count;
    }
    return {state_.get(), std::move(ended)};
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    std::uint64_t count = 0;
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace heddle::engine
