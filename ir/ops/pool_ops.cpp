#include "ir/ops/pool_ops.h"

#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/families.h"

namespace heddle::ir {
namespace ops {
namespace {

void check_kernel(const InferContext& ctx, std::size_t spatial) {
  const auto& kernel = ctx.ints("kernel");
  const bool positive =
      std::all_of(kernel.begin(), kernel.end(), [](std::int64_t k) { return k >= 1; });
  if (kernel.size() == spatial && positive) return;
  fail_argument(ctx, "C3 kernel has one entry a spatial dimension, 1 or more",
                std::to_string(spatial) + " entries of 1 or more", text_of(kernel));
}

/// Windows along spatial dimension d of size `in`. With ceil_mode: one more where the last does not reach the padded
/// end, unless it would start beyond the input and its low padding. A kernel that is longer than the padded input by
/// so little that the formula gives 0 has no window.
SymExpr pool_count(const InferContext& ctx, std::size_t d, const SymExpr& in) {
  const bool rounds_up = ctx.flag("ceil_mode");
  const std::int64_t stride = ctx.ints("strides")[d];
  const std::int64_t high = ctx.ints("pads_high")[d];
  const SymExpr extent = window_extent(ctx, d, ctx.ints("kernel")[d]);
  const SymExpr start_limit = in + ctx.ints("pads_low")[d];
  const SymExpr padded = start_limit + high;
  const SymExpr least = extent - (rounds_up ? 2 * stride - 1 : stride);
  require_le(ctx, least, padded, "C6 the number of windows is at least 0",
             "a padded size of at least " + least.to_string() + " for a kernel that spans " +
                 extent.to_string(),
             seen(ctx.env, padded).to_string());
  if (!rounds_up) return floordiv(padded - extent, stride) + 1;
  const SymExpr reaching = ceildiv(padded - extent, stride) + 1;
  if (high + stride <= extent.constant()) return reaching;  // starts inside by itself
  return min(reaching, ceildiv(start_limit, stride));
}

}  // namespace

std::vector<AttrSpec> pool_attrs() {
  std::vector<AttrSpec> attrs = window_attrs();
  attrs.push_back({"kernel", AttrKind::Ints, {}});
  attrs.push_back({"ceil_mode", AttrKind::Bool, false});
  return attrs;
}

Dims pool_sizes(const InferContext& ctx) {
  const Dims& x = ctx.meta(0).sizes;
  if (x.size() < 3) {
    ctx.fail_shape("C2 x has at least three dimensions", "sizes [N, C, ...]",
                   text_of(seen(ctx.env, x)));
  }
  const std::size_t spatial = x.size() - 2;
  check_kernel(ctx, spatial);
  check_window(ctx, spatial,
               "C4 strides, pads_low, pads_high and dilations have one entry a spatial dimension",
               "C5 strides and dilations are at least 1, pads at least 0");
  Dims sizes = {x[0], x[1]};
  for (std::size_t d = 0; d < spatial; ++d) sizes.push_back(pool_count(ctx, d, x[d + 2]));
  return sizes;
}

}  // namespace ops

std::span<const OpDef> pool_ops() {
  static const OpDef defs[] = {ops::max_pool_op(), ops::max_pool_indices_op(), ops::avg_pool_op()};
  return defs;
}

}  // namespace heddle::ir
