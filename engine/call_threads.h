// Threads of calls that nobody waits for yet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
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
  explicit CallThreads(std::size_t most);
  /// Waits for the end of all calls but one whose end this thread tells of.
  ~CallThreads();
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  /// Threads: any. A call may submit others and wait for them: it has a thread more for them where all are at work.
  /// @throws std::system_error when there is no thread to be had; nothing is queued then.
  std::future<Results> submit(Call call);
  void submit(Call call, Done done);

 private:
  struct State;
  void queue(Call call, Done done);

  const std::size_t most_;
  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;  ///< under the state's mutex until the destructor
};

}  // namespace heddle::engine
