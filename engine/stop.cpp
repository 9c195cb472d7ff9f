#include "heddle/stop.h"

#include <utility>

#include "scheduler/stop.h"

namespace heddle {

StopScope::StopScope(std::stop_token token)
    : token_(std::move(token)), before_(scheduler::watch_stop(&token_)) {}

StopScope::~StopScope() { scheduler::unwatch_stop(before_); }

}  // namespace heddle
