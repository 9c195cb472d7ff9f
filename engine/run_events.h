// The run trace: what happens to the engine's memory while a plan runs.
#pragma once

#include <string>
#include <vector>

#include "ir/schedule.h"

namespace heddle::engine {

/// Names of the record's kernels, made unique: "copy", "copy_1", …
std::vector<std::string> names_of_kernels(const ir::ScheduleRecord& record);

}  // namespace heddle::engine
