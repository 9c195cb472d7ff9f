// Calls that end early.
#pragma once

#include <stop_token>

#include "heddle/export.h"

namespace heddle {

/// While alive, calls of engines on this thread (run(), run_into(), Function and the others; submit() passes it on) end with
/// Cancelled once `token` is asked to stop, by whatever thread:
///
///     std::stop_source request;                        // request.request_stop() when the client has gone
///     hd::StopScope scope(request.get_token());
///     std::vector<hd::Tensor> out = engine.run(inputs);
///
/// A call looks before it begins, before each step of its plan and each iteration of a loop. A step that has begun is finished, and so is
/// a compile, which later calls have. On CUDA it looks before it begins and before each iteration and each part whose sizes the run tells;
/// what is queued is finished. After Cancelled all is as after any
/// other error: the engine can be used, memory is given back, and what the call writes (outputs of run_into(), states, donated inputs)
/// holds anything if it had begun. Scopes nest: the innermost one holds.
class HEDDLE_API StopScope {
 public:
  explicit StopScope(std::stop_token token);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  std::stop_token token_;
  const std::stop_token* before_;
};

}  // namespace heddle
