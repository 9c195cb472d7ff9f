// Small calls of ops, at least one of each that lowers element by element or as a view, and of the
// reductions.
#pragma once

#include <vector>

#include "tests/support/one_op.h"

namespace heddle::testing {

/// Calls on random operands: every dtype the op takes, broadcasts, sizes 0 and 1, negative axes.
std::vector<OneOp> op_samples();

/// One line that names the op, its operands' types and its attributes' names.
std::string describe(const OneOp& call);

}  // namespace heddle::testing
