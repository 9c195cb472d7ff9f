// Pooling: the definitions, and what their inference shares.
#pragma once

#include "ir/ops/window.h"

namespace heddle::ir::ops {

OpDef max_pool_op();
OpDef max_pool_indices_op();
OpDef avg_pool_op();

/// Attributes of all pools: kernel, the window's, ceil_mode.
std::vector<AttrSpec> pool_attrs();
/// The same and `axes`, of pools that may have their dimensions in any order.
std::vector<AttrSpec> ordered_pool_attrs();
/// The spatial dimensions of a pool's operand of `rank` dimensions: `axes`, and all from the third on where there are none.
std::vector<std::int64_t> pool_axes(const Attrs& attrs, std::int64_t rank);
/// ReorderFn of those.
std::optional<Reordered> reorder_pool(const Node& node, std::span<const std::int64_t> perm);
/// Checks C2 to C5 and gives the sizes of the result.
Dims pool_sizes(const InferContext& ctx);
/// Sizes, or strides, and a tensor with the spatial dimensions last; a result whose spatial dimensions are last in its own order.
Sizes with_windows_last(const Node& node, const Sizes& sizes);
Literal with_windows_last(const Node& node, const Literal& x);
Literal with_windows_in_place(const Node& node, const Literal& result);
inline Window pool_window(const Node& node) { return window_of(node, node.ints("kernel")); }

}  // namespace heddle::ir::ops
