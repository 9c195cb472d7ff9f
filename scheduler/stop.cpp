#include "scheduler/stop.h"

#include <atomic>
#include <utility>

#include "heddle/error.h"

namespace heddle::scheduler {

namespace {

/// Whether any thread ever watched: until then nobody looks further.
std::atomic<bool> is_used{false};
thread_local const std::stop_token* watched = nullptr;

}  // namespace

const std::stop_token* watched_stop() {
  return is_used.load(std::memory_order_relaxed) ? watched : nullptr;
}

const std::stop_token* watch_stop(const std::stop_token* token) {
  if (!is_used.load(std::memory_order_relaxed)) is_used.store(true, std::memory_order_relaxed);
  return std::exchange(watched, token);
}

void unwatch_stop(const std::stop_token* before) { watched = before; }

void end_if_stopped(const std::stop_token& token) {
  if (token.stop_requested())
    throw Cancelled({.what = "run: ended before its last step, as its caller asked"});
}

}  // namespace heddle::scheduler
