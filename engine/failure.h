// What a step of a request in flight could not tell by a status word.
#pragma once

#include <exception>
#include <mutex>
#include <utility>

namespace heddle::engine {

/// The status word of a step that stored an exception.
inline constexpr int kFailed = -1;

/// The first exception of a run; any thread may store one.
class Failure {
 public:
  void store(std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }
  std::exception_ptr take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(error_, nullptr);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace heddle::engine
