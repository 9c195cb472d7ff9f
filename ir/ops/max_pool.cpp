// max_pool: the largest element under each window. max_pool_indices: where it lies.
//
//   x                     a number T[N, C, in...], one to any number of spatial dimensions
//   kernel, strides,
//   pads_low, pads_high,
//   dilations             one entry a spatial dimension; see window.h
//   ceil_mode             also a last window that reaches past the padded end, if it starts inside
//                         the input or its low padding
//   axes                  max_pool only: the spatial dimensions, ascending, all but two; empty: all but the
//                         first two. The result has its dimensions in the order of x
//   column_major          max_pool_indices only: spatial dimensions are numbered with the first
//                         one fastest
//   result                max_pool: T[N, C, out...]; max_pool_indices: i64[N, C, out...]
//
//   out_d = floor((in_d + low_d + high_d - dilation_d * (kernel_d - 1) - 1) / stride_d) + 1
//   with ceil_mode: min(the same with ceil, ceil((in_d + low_d) / stride_d))
//
// A kernel that is longer than the padded input by a stride at most has no window: the result is empty. So it is with
// ceil_mode by a stride at least and by less than two.
//
// Padding never wins: a window without an element gives the lowest value (-inf for floats) and
// index -1. NaN wins. Of equal elements, and of NaNs, the first in row-major order of the window
// gives the index. The index counts elements from the start of x: ((n * C + c) * in_0 + i_0) * in_1
// + i_1 …; column_major: (n * C + c) * in_0 * in_1 … + i_0 + in_0 * (i_1 + in_1 * …).
//
// Constraints. infer() checks them in this order; tests are named max_pool_c1 ...
//   C1  x is a number
//   C2  x has at least three dimensions, and axes are all but two of them, ascending
//   C3  kernel has one entry a spatial dimension, 1 or more
//   C4  strides, pads_low, pads_high and dilations have one entry a spatial dimension
//   C5  strides and dilations are at least 1, pads at least 0
//   C6  the number of windows is at least 0
//
// Memory: the result is fresh.
// Source: ONNX MaxPool-12.
#include <limits>

#include "ir/ops/common.h"
#include "ir/ops/pool_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_values(const InferContext& ctx) {
  require_number(ctx, 0, "C1 x is a number");
  return one(fresh(ctx, ctx.meta(0).dtype, pool_sizes(ctx)));
}

std::vector<TensorMeta> infer_indices(const InferContext& ctx) {
  require_number(ctx, 0, "C1 x is a number");
  return one(fresh(ctx, DType::I64, pool_sizes(ctx)));
}

/// For each element of the result, the row-major position of the winner in its plane of x; -1 for
/// none.
std::vector<std::int64_t> winners(const EvalContext& ctx, const Literal& x, const Sizes& sizes) {
  const Window window = pool_window(ctx.node);
  const AxisCut in = cut_at(x.sizes(), 1);
  const AxisCut out = cut_at(sizes, 1);
  std::vector<std::int64_t> result(static_cast<std::size_t>(element_count(sizes)), -1);
  with_number(x.dtype(), [&]<typename T>() {
    const std::vector<T> xs = dense<T>(x);
    for_each_index(spatial_of(sizes), [&](std::int64_t position, const Sizes& at) {
      const std::vector<Tap> taps = taps_inside(window, at, spatial_of(x.sizes()));
      for (std::int64_t plane = 0; plane < out.outer * out.length; ++plane) {
        std::int64_t& best = result[static_cast<std::size_t>(plane * out.inner + position)];
        const T* values = xs.data() + plane * in.inner;
        for (const Tap& tap : taps) {
          const bool first = best < 0;
          if (first || (!is_nan(values[best]) &&
                        (is_nan(values[tap.input]) || values[tap.input] > values[best]))) {
            best = tap.input;
          }
        }
      }
    });
  });
  return result;
}

double lowest_of(DType dtype) {
  if (is_floating(dtype)) return -std::numeric_limits<double>::infinity();
  if (!is_signed(dtype)) return 0;
  return -static_cast<double>(std::uint64_t{1} << (8 * size_of(dtype) - 1));
}

std::vector<Literal> evaluate_values(const EvalContext& ctx) {
  const Literal x = with_windows_last(ctx.node, ctx.inputs[0]);
  const Sizes sizes = with_windows_last(ctx.node, ctx.output_sizes());
  const AxisCut in = cut_at(x.sizes(), 1);
  const AxisCut out = cut_at(sizes, 1);
  const std::vector<std::int64_t> best = winners(ctx, x, sizes);
  const Literal none = Literal::scalar(x.dtype(), lowest_of(x.dtype()));
  return with_number(x.dtype(), [&]<typename T>() {
    const std::vector<T> xs = dense<T>(x);
    std::vector<T> result(best.size(), dense<T>(none)[0]);
    for (std::size_t k = 0; k < best.size(); ++k) {
      const std::int64_t plane = static_cast<std::int64_t>(k) / out.inner;
      if (best[k] >= 0) result[k] = xs[static_cast<std::size_t>(plane * in.inner + best[k])];
    }
    return std::vector<Literal>{
        with_windows_in_place(ctx.node, literal_of(x.dtype(), sizes, result))};
  });
}

/// The number of a spatial position when the first dimension runs fastest.
std::int64_t column_major(std::int64_t position, const Sizes& sizes) {
  const Sizes index = index_at(position, sizes);
  std::int64_t number = 0;
  for (std::size_t d = sizes.size(); d-- > 0;) number = number * sizes[d] + index[d];
  return number;
}

std::vector<Literal> evaluate_indices(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const AxisCut in = cut_at(x.sizes(), 1);
  const AxisCut out = cut_at(ctx.output_sizes(), 1);
  std::vector<std::int64_t> result = winners(ctx, x, ctx.output_sizes());
  for (std::size_t k = 0; k < result.size(); ++k) {
    if (result[k] < 0) continue;
    if (ctx.node.flag("column_major")) result[k] = column_major(result[k], spatial_of(x.sizes()));
    result[k] += static_cast<std::int64_t>(k) / out.inner * in.inner;
  }
  return {literal_of(DType::I64, ctx.output_sizes(), result)};
}

}  // namespace

OpDef max_pool_op() {
  return {.name = "max_pool",
          .operands = {{"x"}},
          .attrs = ordered_pool_attrs(),
          .infer = infer_values,
          .evaluate = evaluate_values,
          .lowering = {.nest = "pool"},
          .reorder = reorder_pool,
          .apart = {{Apart::kAllButFirst, {Apart::kAllButFirst}}}};
}

OpDef max_pool_indices_op() {
  std::vector<AttrSpec> attrs = pool_attrs();
  attrs.push_back({"column_major", AttrKind::Bool, false});
  return {.name = "max_pool_indices",
          .operands = {{"x"}},
          .attrs = std::move(attrs),
          .infer = infer_indices,
          .evaluate = evaluate_indices,
          .lowering = {.nest = "pool"}};
}

}  // namespace heddle::ir::ops
