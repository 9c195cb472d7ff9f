// What an index was that a kernel on the CPU found out of range.
#pragma once

#include <cstdint>

#include "heddle/error.h"
#include "jit/program.h"

namespace heddle::jit {

struct IndexReport {
  std::int32_t check = 0;  ///< BindStmt::check; 0: nothing was reported
  std::int64_t index = 0;  ///< as the graph gives it: a negative one counts from the end
  std::int64_t size = 0;   ///< of the dimension it indexes
};

/// Called by kernels: sets the status word unless an earlier check has, and remembers the index.
/// @param from_front  the index, counted from the front
/// @param last        the largest one that is there
void report_index(std::int32_t* status, std::int32_t check, std::int64_t from_front,
                  std::int64_t last);

/// What a kernel reported on this thread since this was asked last.
IndexReport take_index_report();

/// The error that a failed check stands for; with the index, where `report` is of this check.
/// @param status  the status word, above 0
IndexError index_error(const Program& program, std::int32_t status, const IndexReport& report);

}  // namespace heddle::jit
