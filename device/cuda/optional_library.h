// A library that kernels of ours compete with: optional, opened while running, where nobody waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"

namespace heddle::device::cuda {

/// A result from two operands at sizes that it was made for, and the way that the library chose for it. Threads: any.
class LibraryPlan {
 public:
  virtual ~LibraryPlan() = default;
  virtual std::size_t workspace_bytes() const = 0;
  /// Queued on a stream of the platform's. Addresses are multiples of OptionalLibrary::kAlignment, that of the workspace of
  /// 256. @throws DeviceError, DeviceLost.
  virtual void run(const void* left, const void* right, void* result, void* workspace,
                   void* stream) const = 0;
};

/// The library on one device. Threads: any.
class OptionalLibrary {
 public:
  /// What addresses of operands and results have to be multiples of.
  static constexpr std::size_t kAlignment = 16;

  /// Opens nothing yet. @param name  for messages: "cuBLASLt". @param paths  tried in order; empty: there is no library
  OptionalLibrary(std::string name, Device& device, std::vector<std::string> paths);
  virtual ~OptionalLibrary() = default;
  OptionalLibrary(const OptionalLibrary&) = delete;
  OptionalLibrary& operator=(const OptionalLibrary&) = delete;

  const std::string& name() const { return name_; }
  bool is_wanted() const { return !paths_.empty(); }
  /// Opens the library, which may take long. False, also from then on: there is none that works, and `why()` says why.
  bool open();
  /// Not one that failed.
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  /// It is not used any more. What was made by it stays until this goes.
  void fail(const std::string& why);
  /// The first thing that went wrong, opening it or later. Empty: nothing did.
  std::string why() const;
  /// Of a plan that it refused: there may be others.
  void note(const std::string& why);

 protected:
  /// @throws DeviceError.
  virtual void load() = 0;

  Device& device_;

  const std::vector<std::string> paths_;

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  bool tried_ = false;  ///< under `mutex_`
  std::string why_;     ///< under `mutex_`
  std::atomic<bool> open_{false};
};

/// Where a library is looked for: at the path that the environment variable says alone if it is set, nowhere if that is
/// "none"; else toolkit_paths() of `sonames`.
std::vector<std::string> optional_paths(const char* variable,
                                        const std::vector<std::string>& sonames);

}  // namespace heddle::device::cuda
