// Work that no call waits for.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace heddle::engine {

/// A thread that does one piece of work after another; started with the first.
class Background {
 public:
  Background() = default;
  /// Waits for the piece that is under way; the others are dropped.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Queues `work`, which must not throw. Threads: any.
  /// @throws std::system_error when there is no thread to be had; nothing is queued then.
  void post(std::function<void()> work);
  /// Waits until nothing is queued or under way.
  void wait();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  ///< under `mutex_`
  bool busy_ = false;                        ///< under `mutex_`
  bool stop_ = false;                        ///< under `mutex_`
  std::thread thread_;                       ///< under `mutex_` until the destructor
};

}  // namespace heddle::engine
