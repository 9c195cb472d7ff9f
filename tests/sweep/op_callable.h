// Calls of ops as callables over tensors.
#pragma once

#include "heddle/engine.h"
#include "tests/support/one_op.h"

namespace heddle::testing {

/// Whether an operand is left out.
bool is_absent(const ir::Literal& operand);

/// The call as a callable over its operands that are there.
TraceFunction callable_of(const OneOp& call);
/// These operands.
std::vector<Tensor> inputs_of(const OneOp& call);

}  // namespace heddle::testing
