// What the entry points of the driver share: the lock, the state of the context, handles.
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_sim/machine.h"
#include "tests/cuda_sim/module.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace heddle::sim {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kUpdateFailed = 910,
  kUnknown = 999,
};

/// The largest distance of two rows that a copy may name. Real devices have 2^31 - 1: what relies on more is found
/// here without gigabytes.
constexpr std::size_t kMaxPitch = 4096;

/// Entry points run one at a time.
std::recursive_mutex& mutex();

/// The device's contexts, which share all but their handles: streams and events are used in the one that they were
/// made in. Under mutex().
struct ContextState {
  int lost = kSuccess;  ///< an error that it does not survive: every later call gives it again
  std::string why_lost;
  int holders = 0;             ///< of the primary context
  std::set<void*> contexts{};  ///< made by cuCtxCreate
  std::set<Module*> modules;
  unsigned long leaked = 0;
};
ContextState& context_state();
/// Programs of NVRTC, and handles and descriptors of libraries that are there; of no context.
std::atomic<unsigned long>& objects();
/// Contexts that this thread pushed and did not pop; the last one is current.
std::vector<void*>& context_stack();

/// Loses the context. @return `error`.
int lose(int error, const std::string& why);
/// The state of the context after what ran: an error, or kSuccess.
int usable();
/// Waits for what `finished` tells about. Work that can never run is a hang on a real device.
int waited(bool finished);

/// Null if the handle is none of ours, or not of the current context.
Stream* stream_of(void* handle);
Event* event_of(void* handle);
/// What waiting for a stream that is captured, or an event there, is: kCaptureUnsupported, and the capture is lost.
/// kSuccess: it is not captured.
int not_captured(Stream& stream);

/// The calling thread's mode.
CaptureMode& capture_mode();
/// What a call that may wait or allocate is to the captures under way: kCaptureUnsupported, and those that mind it are
/// lost; kSuccess: none does.
int apart_from_captures();

/// The first pointer argument, of values as Operation has them, that points to no live allocation, or -1.
int wild_argument(const Kernel& kernel, const std::vector<std::uint64_t>& arguments);
/// Fills the launch of `kernel` into `operation`. @return kInvalidValue for a shape that is none.
int set_launch(Operation& operation, Kernel& kernel, heddle_sim_uint3 grid, heddle_sim_uint3 block,
               std::size_t shared_bytes, void** arguments);

/// What an entry point holds while it runs: the lock, and the error it has to give.
class Entry {
 public:
  explicit Entry(const char* function);
  /// The error to give in place of what needs a context; 0: work.
  int in_context() const { return error_ != kSuccess ? error_ : usable(); }
  /// The same of what may wait or allocate.
  int in_context_apart() const {
    const int error = in_context();
    return error != kSuccess ? error : apart_from_captures();
  }
  /// What a function gives that has done its work anyway.
  int after(int result) const { return error_ != kSuccess ? error_ : result; }

 private:
  std::lock_guard<std::recursive_mutex> lock_{mutex()};
  int error_;
};

}  // namespace heddle::sim
