// Custom ops in the reference evaluator.
#pragma once

#include <vector>

#include "ir/op.h"

namespace heddle::ir {

/// Runs the op's reference function, or its CPU kernel, on copies of what it writes.
/// @throws what the function throws.
std::vector<Literal> evaluate_custom(const EvalContext& context);

}  // namespace heddle::ir
