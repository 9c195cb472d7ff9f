// Convolution and its transpose: the two definitions, and what their inference shares.
#pragma once

#include <algorithm>
#include <vector>

#include "ir/ops/window.h"

namespace heddle::ir::ops {

OpDef conv_op();
OpDef conv_transpose_op();
OpDef int8_conv_op();

/// Checks C1 to C4 of both ops: dtypes, ranks, the window's attributes. Returns the spatial rank.
std::size_t check_conv_operands(const InferContext& ctx);
/// Checks C5: groups is at least 1. Returns it.
std::int64_t check_groups(const InferContext& ctx);
/// Fails with `label` unless the bias, if there is one, has sizes [channels].
void check_bias(const InferContext& ctx, const SymExpr& channels, std::string_view label);
/// The dtype of the result: that all operands promote to.
DType conv_dtype(const InferContext& ctx);

/// Converts the operands to the result's dtype, if one is not of it yet, around the same op.
std::vector<Value> decompose_conv_dtypes(DecomposeContext& ctx);

/// Sizes [N, in..., C] as [N, C, in...].
template <typename T>
std::vector<T> channels_second(std::vector<T> sizes) {
  std::rotate(sizes.begin() + 1, sizes.end() - 1, sizes.end());
  return sizes;
}

/// The values of a result that starts as the bias by channel, which is dimension `axis`, or as 0 without one.
template <typename T>
std::vector<T> start_with_bias(const EvalContext& ctx, DType dtype, const Sizes& sizes,
                               std::size_t axis = 1) {
  std::vector<T> result(static_cast<std::size_t>(element_count(sizes)));
  if (!ctx.has(2)) return result;
  const std::vector<T> bias = dense<T>(converted(ctx.inputs[2], dtype));
  const AxisCut cut = cut_at(sizes, axis);
  for (std::size_t k = 0; k < result.size(); ++k) {
    result[k] =
        bias[static_cast<std::size_t>(static_cast<std::int64_t>(k) / cut.inner % cut.length)];
  }
  return result;
}

}  // namespace heddle::ir::ops
