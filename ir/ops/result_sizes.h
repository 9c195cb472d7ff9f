// Sizes that a program computes for a result.
#pragma once

#include <string_view>

#include "ir/op.h"

namespace heddle::ir::ops {

/// Makes `sizes`, which are an attribute or a shape function's, at least 0 in every call; fails with `label` where
/// they cannot be. Sizes that only the run tells are the run's.
void require_sizes(const InferContext& ctx, const Dims& sizes, std::string_view label);

}  // namespace heddle::ir::ops
