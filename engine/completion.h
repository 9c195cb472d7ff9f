// When a call that did not wait for its work is done, and whether it failed.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace heddle::engine {

class Executable;

/// The end of the work that one call queued. Threads: any.
class Completion {
 public:
  /// Where the work ends.
  struct Point {
    std::shared_ptr<device::Event> event;  ///< recorded behind it
    void* stream;                          ///< native handle of the stream where it was recorded
    std::uint64_t before;  ///< numbers of all calls up to this were given before it was recorded
    std::uint64_t number;  ///< of the call, given when it was
  };

  /// @param status  where the call's status word is when the event is done, until settle() returned
  Completion(Point end, const std::int32_t* status, std::shared_ptr<const Executable> executable);

  /// Whether the work of `earlier` is done when this is, by the order of their stream alone.
  bool implies(const Completion& earlier) const {
    return end_.stream == earlier.end_.stream && earlier.end_.number <= end_.before;
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
  bool settled_ = false;
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
};

}  // namespace heddle::engine
