// Threads of calls that nobody waits for yet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "heddle/tensor.h"

namespace heddle::engine {

/// Runs calls in the order in which they are submitted, each on one of a few threads, which are started when there is more to do than
/// threads that wait for it and stay until the end.
class CallThreads {
 public:
  using Results = std::vector<Tensor>;
  using Call = std::packaged_task<Results()>;
  /// Gets what a call that has ended gave or threw, on the thread that ran it. Must not throw.
  using Done = std::function<void(std::future<Results>)>;

  /// @param most  threads; at least 1
  explicit CallThreads(std::size_t most) : most_(most) {}
  /// Waits for the end of all calls.
  ~CallThreads();
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  /// Threads: any. A call may submit others and wait for them: it has a thread more for them where all are at work.
  /// @throws std::system_error when there is no thread to be had; nothing is queued then.
  std::future<Results> submit(Call call);
  void submit(Call call, Done done);

 private:
  struct Queued {
    Call call;
    Done done;  ///< null: nobody is told
  };
  void queue(Queued queued);
  void work();

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Queued> queue_;          ///< under `mutex_`
  std::size_t waiting_ = 0;           ///< threads without a call; under `mutex_`
  bool stop_ = false;                 ///< under `mutex_`
  std::vector<std::thread> threads_;  ///< under `mutex_` until the destructor
};

}  // namespace heddle::engine
