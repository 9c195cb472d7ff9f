// Which sizes a step uses.
#pragma once

#include <vector>

#include "jit/program.h"

namespace heddle::jit {

/// Unbacked sizes that running the step takes: those of its buffers, of its kernel's parameters, and what the
/// programs nested in it take from around them. Sorted, each once.
std::vector<Symbol> sizes_of_step(const ir::ScheduleRecord& record, const ir::PlanStep& step,
                                  const ProgramKernel& code, const Launch& launch);

}  // namespace heddle::jit
