// Ops of the engine's own whose results have sizes that only the run tells, or that one thread of the host does
// step by step: each is a custom op (ir/custom_op.h) that every process has, named heddle::….
#pragma once

#include <memory>
#include <vector>

#include "ir/custom_op.h"

namespace heddle::ir::ops {

std::unique_ptr<CustomOp> as_size_op();
std::unique_ptr<CustomOp> bit_cast_op();
std::unique_ptr<CustomOp> non_max_suppression_op();
std::unique_ptr<CustomOp> random_key_op();

/// All of them.
std::vector<std::unique_ptr<CustomOp>> host_ops();

}  // namespace heddle::ir::ops
