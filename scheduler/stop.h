// Work that its caller may end early.
#pragma once

#include <stop_token>

namespace heddle::scheduler {

/// What asks work on this thread to stop; null: nothing does.
const std::stop_token* watched_stop();
/// Puts `token`, which outlives that, in the place of what is watched. @return what was watched before, for unwatch_stop().
const std::stop_token* watch_stop(const std::stop_token* token);
/// Each watch_stop() has one, on the same thread; the last one first.
void unwatch_stop(const std::stop_token* before);

/// @throws Cancelled when `token` was asked to stop.
void end_if_stopped(const std::stop_token& token);
/// The same of what is watched.
inline void end_if_stopped() {
  if (const std::stop_token* token = watched_stop()) [[unlikely]]
    end_if_stopped(*token);
}

/// Watches a token while it lives.
class StopScope {
 public:
  explicit StopScope(const std::stop_token& token) : before_(watch_stop(&token)) {}
  ~StopScope() { unwatch_stop(before_); }
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  const std::stop_token* before_;
};

}  // namespace heddle::scheduler
