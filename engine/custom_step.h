// Steps of custom ops as the executor runs them.
#pragma once

#include <cstdint>

#include "scheduler/executor.h"

namespace heddle::engine {

/// BoundStep::run of a step whose code is a jit::BoundCustomCall and whose request is a Failure.
void run_custom(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
                std::int32_t* status);

}  // namespace heddle::engine
