// A CUDA context and the driver, which all that a device makes shares.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "device/cuda/driver.h"
#include "heddle/error.h"

namespace heddle::device::cuda {

/// Of captures: what this and other threads do meanwhile is none of its business.
inline constexpr int kCaptureRelaxed = 2;

/// While it lives the thread's calls are none of the business of captures that others have under way. In the mode that
/// threads begin with, calls that may wait or allocate are refused while another thread captures in that mode, and break
/// its capture. Where the mode cannot be had they are made as they are.
class Apart {
 public:
  explicit Apart(const Driver& driver)
      : driver_(driver), is_set_(driver.exchange_capture_mode(&mode_) == 0) {}
  ~Apart() {
    if (is_set_) driver_.exchange_capture_mode(&mode_);
  }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCaptureRelaxed;
  bool is_set_;
};

/// The driver and a context, shared by everything made from a device.
class Context {
 public:
  Context(int index, const std::string& driver_path, bool reset, void* own)
      : driver(driver_path), context_(own), is_primary_(own == nullptr) {
    int count = 0;
    driver.check(driver.device_count(&count), "cuDeviceGetCount");
    if (index < 0 || index >= count)
      throw DeviceError(
          {.what = "CUDA device " + std::to_string(index),
           .where = driver.path(),
           .expected = count == 0 ? "a device" : "an index below " + std::to_string(count),
           .got = std::to_string(count) + " devices"});
    driver.check(driver.device_get(&device_, index), "cuDeviceGet");
    if (!is_primary_) {
      check_device(index);
      return;
    }
    if (reset) driver.check(driver.primary_context_reset(device_), "cuDevicePrimaryCtxReset");
    driver.check(driver.primary_context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  }
  ~Context() {
    if (is_primary_) driver.primary_context_release(device_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Calls `function` with the context current, and throws what its result means.
  template <typename Function>
  void call(const char* name, Function function) {
    check(call_quietly(function), name);
  }
  /// The same of what may wait or allocate.
  template <typename Function>
  void call_apart(const char* name, Function function) {
    check(call_quietly([&] {
            const Apart apart(driver);
            return function();
          }),
          name);
  }
  /// A lost context is not touched again: its handles may be those of its successor by now.
  template <typename Function>
  int call_quietly(Function function) noexcept {
    if (const int fatal = lost_; fatal != 0) return fatal;
    if (entered == this) return function();
    if (const int result = driver.context_push(context_); result != 0) return result;
    const int result = function();
    pop();
    return result;
  }
  /// Device::enter() and leave().
  bool enter() noexcept {
    if (entered == this || lost()) return false;
    if (const int result = driver.context_push(context_); result != 0) {
      if (Driver::is_fatal(result)) lost_ = result;
      return false;
    }
    entered = this;
    return true;
  }
  void leave() noexcept {
    entered = nullptr;
    pop();
  }
  /// Calls `work`, which may throw and is somebody else's, with the context current.
  void enter(const std::function<void()>& work) {
    const int fatal = lost_;
    check(fatal != 0 ? fatal : driver.context_push(context_), "cuCtxPushCurrent");
    struct Pop {
      const Context& context;
      const Context* const before = std::exchange(entered, nullptr);
      ~Pop() {
        context.pop();
        entered = before;
      }
    } const pop{*this};
    const Apart apart(driver);
    work();
  }
  /// For what gives something back or ends it. A context that cannot be made current gets a second chance: what is
  /// left behind here is left for good.
  template <typename Function>
  int release(Function function) noexcept {
    if (const int fatal = lost_; fatal != 0) return fatal;
    if (entered == this) {
      const Apart apart(driver);
      return function();
    }
    if (driver.context_push(context_) != 0)
      if (const int result = driver.context_push(context_); result != 0) return result;
    const int result = [&] {
      const Apart apart(driver);
      return function();
    }();
    pop();
    return result;
  }
  void check(int result, const char* name) {
    if (Driver::is_fatal(result)) lost_ = result;
    if (result != 0 && lost())
      throw DeviceLost({.what = std::string(name) + " failed and the CUDA context is lost",
                        .where = driver.path(),
                        .expected = {},
                        .got = driver.describe(result)});
    driver.check(result, name);
  }
  bool lost() const { return lost_ != 0; }

  int attribute(int which) {
    int value = 0;
    driver.check(driver.device_attribute(&value, which, device_), "cuDeviceGetAttribute");
    return value;
  }
  int device() const { return device_; }
  void* handle() const { return context_; }

  Driver driver;

 private:
  void pop() const noexcept {
    void* popped = nullptr;
    driver.context_pop(&popped);
  }
  /// The caller's context has to be one of the device that was asked for.
  void check_device(int index) {
    int device = 0;
    check(call_quietly([&] { return driver.context_device(&device); }), "cuCtxGetDevice");
    if (device == device_) return;
    throw DeviceError({.what = "the caller's CUDA context",
                       .where = driver.path(),
                       .expected = "one of device " + std::to_string(index),
                       .got = "one of another device"});
  }

  int device_ = 0;
  void* context_ = nullptr;
  bool is_primary_;
  std::atomic<int> lost_{0};  ///< the error that the context did not survive
  static inline thread_local const Context* entered = nullptr;  ///< by enter()
};
using ContextPtr = std::shared_ptr<Context>;

}  // namespace heddle::device::cuda
