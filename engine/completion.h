// When a call that did not wait for its work is done, and whether it failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace heddle::engine {

class Executable;

/// Up to which of the calls that did not wait the work on one stream is known to be done, whoever found out. Threads: any.
class StreamProgress {
 public:
  /// Number 0: of no call.
  bool has_passed(std::uint64_t number) const {
    return number <= passed_.load(std::memory_order_acquire);
  }
  void pass(std::uint64_t number) {
    std::uint64_t passed = passed_.load(std::memory_order_relaxed);
    while (passed < number &&
           !passed_.compare_exchange_weak(passed, number, std::memory_order_acq_rel)) {
    }
  }

 private:
  std::atomic<std::uint64_t> passed_{0};
};

/// The end of the work that one call queued. Threads: any.
class Completion {
 public:
  /// Where the work ends.
  struct Point {
    std::shared_ptr<device::Event> event;  ///< recorded behind it
    void* stream;                          ///< native handle of the stream where it was recorded
    std::uint64_t before;  ///< numbers of all calls up to this were given before it was recorded
    std::uint64_t number;  ///< of the call, given when it was
    std::shared_ptr<StreamProgress> progress;  ///< of the stream
  };

  /// @param status  where the call's status word is when the event is done, until settle() returned
  Completion(Point end, const std::int32_t* status, std::shared_ptr<const Executable> executable);

  /// Whether the work of `earlier` is done when this is, by the order of their stream alone.
  bool implies(const Completion& earlier) const {
    return end_.stream == earlier.end_.stream && earlier.end_.number <= end_.before;
  }

  /// Whether the work is known to be done, without asking the device.
  bool known_done() const {
    return settled_.load(std::memory_order_acquire) || end_.progress->has_passed(end_.number);
  }
  /// Whether the work is done; does not wait.
  bool done();
  /// Waits on the host.
  /// @throws IndexError naming the check that failed; DeviceLost, DeviceError.
  void wait();
  /// Waits and keeps the outcome; the status word may be used again. Does not throw: wait() does.
  void settle() noexcept;
  /// Lets what is queued on `stream` from now on begin after the work. Does not wait. @return false: it does so anyway
  bool order_before(device::Stream& stream);
  /// After settle(): 0 or what a check reported; -1 when the device failed.
  std::int32_t status();

 private:
  /// Under `mutex_`, when the event is done or failed.
  void keep_outcome(std::exception_ptr error) noexcept;

  const Point end_;
  std::mutex mutex_;
  std::atomic<bool> settled_{false};  ///< written under `mutex_`
  const std::int32_t* status_word_;
  std::int32_t status_ = 0;
  std::exception_ptr error_;
  std::shared_ptr<const Executable> executable_;  ///< names checks; null when settled
};
using CompletionPtr = std::shared_ptr<Completion>;

/// The calls that did not wait and touch memory of a tensor. Threads: any.
class PendingUses {
 public:
  /// Lets what `stream` does from now on read (or write) the memory. @return false: it may do so anyway
  bool order(device::Stream& stream, bool writes);
  void add(const CompletionPtr& use, bool writes);
  /// Until the memory holds what was written last. @throws what Completion::wait() throws.
  void wait();

 private:
  std::mutex mutex_;
  CompletionPtr writer_;
  std::vector<CompletionPtr> readers_;  ///< since
  // What most memory that is read, and most that is written, needs no lock to know.
  std::atomic<bool> has_writer_{false};
  std::atomic<bool> has_readers_{false};
};

}  // namespace heddle::engine
