// Pooling: the definitions, and what their inference shares.
#pragma once

#include "ir/ops/window.h"

namespace heddle::ir::ops {

OpDef max_pool_op();
OpDef max_pool_indices_op();
OpDef avg_pool_op();

/// Attributes of all pools: kernel, the window's, ceil_mode.
std::vector<AttrSpec> pool_attrs();
/// Checks C2 to C5 and gives the sizes of the result.
Dims pool_sizes(const InferContext& ctx);
inline Window pool_window(const Node& node) { return window_of(node, node.ints("kernel")); }

}  // namespace heddle::ir::ops
