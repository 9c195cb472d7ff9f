// avg_pool: the mean of the elements under each window.
//
//   x                     a floating T[N, C, in...], one to any number of spatial dimensions
//   kernel, strides,
//   pads_low, pads_high,
//   dilations             one entry a spatial dimension; see window.h
//   ceil_mode, axes       as in max_pool
//   count_include_pad     the divisor counts the taps that lie in the padding too (those that
//                         ceil_mode lets reach past the padding never)
//   result                T[N, C, out...], sizes as in max_pool
//
// Padding adds 0. Without count_include_pad the divisor counts the taps inside x; a window without
// one gives NaN. f16 and bf16 are summed and divided in f32 and rounded once.
//
// Constraints. infer() checks them in this order; tests are named avg_pool_c1 ...
//   C1  x has a floating dtype
//   C2  x has at least three dimensions, and axes are all but two of them, ascending
//   C3  kernel has one entry a spatial dimension, 1 or more
//   C4  strides, pads_low, pads_high and dilations have one entry a spatial dimension
//   C5  strides and dilations are at least 1, pads at least 0
//   C6  the number of windows is at least 0
//
// Memory: the result is fresh.
// Source: ONNX AveragePool-19.
#include "ir/ops/common.h"
#include "ir/ops/pool_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_avg_pool(const InferContext& ctx) {
  require_floating(ctx, 0, "C1 x has a floating dtype");
  return one(fresh(ctx, ctx.meta(0).dtype, pool_sizes(ctx)));
}

/// Taps of the window at `at` that lie inside the padded input.
std::int64_t taps_with_padding(const Window& window, const Sizes& at, const Sizes& sizes) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < at.size(); ++d) {
    std::int64_t inside = 0;
    for (std::int64_t tap = 0; tap < window.kernel[d]; ++tap) {
      const std::int64_t position = at[d] * window.strides[d] + tap * window.dilations[d];
      inside += position < window.pads_low[d] + sizes[d] + window.pads_high[d];
    }
    count *= inside;
  }
  return count;
}

std::vector<Literal> evaluate_avg_pool(const EvalContext& ctx) {
  const Literal x = with_windows_last(ctx.node, ctx.inputs[0]);
  const Sizes sizes = with_windows_last(ctx.node, ctx.output_sizes());
  const Sizes spatial = spatial_of(x.sizes());
  const Window window = pool_window(ctx.node);
  const AxisCut in = cut_at(x.sizes(), 1);
  const AxisCut out = cut_at(sizes, 1);
  const std::vector<double> xs = dense<double>(x);
  std::vector<double> result(static_cast<std::size_t>(element_count(sizes)));
  for_each_index(spatial_of(sizes), [&](std::int64_t position, const Sizes& at) {
    const std::vector<Tap> taps = taps_inside(window, at, spatial);
    const auto divisor = ctx.node.flag("count_include_pad")
                             ? taps_with_padding(window, at, spatial)
                             : static_cast<std::int64_t>(taps.size());
    for (std::int64_t plane = 0; plane < out.outer * out.length; ++plane) {
      double sum = 0;
      for (const Tap& tap : taps) {
        sum += xs[static_cast<std::size_t>(plane * in.inner + tap.input)];
      }
      result[static_cast<std::size_t>(plane * out.inner + position)] =
          sum / static_cast<double>(divisor);
    }
  });
  return {with_windows_in_place(ctx.node, literal_of(x.dtype(), sizes, result))};
}

}  // namespace

OpDef avg_pool_op() {
  std::vector<AttrSpec> attrs = ordered_pool_attrs();
  attrs.push_back({"count_include_pad", AttrKind::Bool, false});
  return {.name = "avg_pool",
          .operands = {{"x"}},
          .attrs = std::move(attrs),
          .infer = infer_avg_pool,
          .evaluate = evaluate_avg_pool,
          .lowering = {.nest = "pool"},
          .reorder = reorder_pool,
          .apart = {{Apart::kAllButFirst, {Apart::kAllButFirst}}}};
}

}  // namespace heddle::ir::ops
