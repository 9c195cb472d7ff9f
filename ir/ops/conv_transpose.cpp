// conv_transpose: the transpose of conv with the same window: each input element adds a scaled
// kernel to the result.
//
//   x                     T[N, C, in...], one to any number of spatial dimensions
//   w                     U[C, M / groups, kernel...]
//   bias                  optional, V[M]; absent: 0
//   strides, pads_low,
//   pads_high, dilations  one entry a spatial dimension; of the window that slides over the result
//   output_padding        rows added at the high end, one entry a spatial dimension
//   groups                runs of C / groups input channels that make M / groups output channels
//                         each
//   result                promote(T, U, V)[N, M, out...]
//
//   out_d = (in_d - 1) * stride_d - low_d - high_d + extent_d + output_padding_d
//   extent_d = dilation_d * (kernel_d - 1) + 1
//   result[n, m, o] = bias[m] + sum of w[c, m mod (M / groups), tap] * x[n, c, i] over all c of
//                     m's group, i and tap with i * stride - low + tap * dilation = o
//
// Operands are converted to the result's dtype first. Products are summed in accumulator_of(result
// dtype): f32 for f16 and bf16; integers wrap.
//
// Constraints. infer() checks them in this order; tests are named conv_transpose_c1 ...
//   C1  x, w and bias are numbers
//   C2  x and w have the same number of dimensions, at least three
//   C3  strides, pads_low, pads_high and dilations have one entry a spatial dimension
//   C4  strides and dilations are at least 1, pads at least 0
//   C5  groups is at least 1
//   C6  x and w agree on the channels C
//   C7  the channels C are a multiple of groups
//   C8  bias has sizes [M]
//   C9  output_padding has one entry a spatial dimension, 0 or more
//   C10 every size of the result is at least 0
//
// Memory: the result is fresh.
// Lowering: nest "conv_transpose" takes operands of the result's dtype; decompose converts the
// others.
// Source: ONNX ConvTranspose-11.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/conv_ops.h"

namespace heddle::ir::ops {
namespace {

void check_output_padding(const InferContext& ctx, std::size_t spatial) {
  const auto& padding = ctx.ints("output_padding");
  const bool none_negative =
      std::all_of(padding.begin(), padding.end(), [](std::int64_t p) { return p >= 0; });
  if (padding.size() == spatial && none_negative) return;
  fail_argument(ctx, "C9 output_padding has one entry a spatial dimension, 0 or more",
                std::to_string(spatial) + " entries of 0 or more", text_of(padding));
}

SymExpr output_size(const InferContext& ctx, std::size_t d, const SymExpr& in,
                    const SymExpr& kernel) {
  const SymExpr size = (in - 1) * ctx.ints("strides")[d] + window_extent(ctx, d, kernel) -
                       ctx.ints("pads_low")[d] - ctx.ints("pads_high")[d] +
                       ctx.ints("output_padding")[d];
  require_le(ctx, 0, size, "C10 every size of the result is at least 0", "0 or more",
             seen(ctx.env, size).to_string());
  return size;
}

std::vector<TensorMeta> infer_conv_transpose(const InferContext& ctx) {
  const std::size_t spatial = check_conv_operands(ctx);
  const std::int64_t groups = check_groups(ctx);
  const Dims& x = ctx.meta(0).sizes;
  const Dims& w = ctx.meta(1).sizes;
  ctx.require_equal(w[0], x[1], "C6 x and w agree on the channels C");
  require_multiple(ctx, x[1], groups, "C7 the channels C are a multiple of groups");
  check_bias(ctx, w[1] * groups, "C8 bias has sizes [M]");
  check_output_padding(ctx, spatial);
  Dims sizes = {x[0], w[1] * groups};
  for (std::size_t d = 0; d < spatial; ++d) {
    sizes.push_back(output_size(ctx, d, x[d + 2], w[d + 2]));
  }
  return one(fresh(ctx, conv_dtype(ctx), std::move(sizes)));
}

/// Adds to `result`, of `sizes`, every element of `x` times its kernel. The window slides over the
/// result: its taps at position i are where x[i] goes.
template <typename T>
void spread(const Window& window, const Literal& x, const Literal& w, std::int64_t groups,
            const Sizes& sizes, std::vector<T>& result) {
  const AxisCut in = cut_at(x.sizes(), 1);
  const AxisCut kernel = cut_at(w.sizes(), 1);
  const AxisCut out = cut_at(sizes, 1);
  const std::int64_t channels_in = in.length / groups;
  const std::vector<T> xs = dense<T>(x);
  const std::vector<T> ws = dense<T>(w);
  for_each_index(spatial_of(x.sizes()), [&](std::int64_t position, const Sizes& at) {
    const std::vector<Tap> taps = taps_inside(window, at, spatial_of(sizes));
    for (std::int64_t n = 0; n < in.outer; ++n) {
      for (std::int64_t c = 0; c < in.length; ++c) {
        const T value = xs[in.at(n, c, position)];
        for (std::int64_t m = 0; m < kernel.length; ++m) {
          const std::int64_t channel = c / channels_in * kernel.length + m;
          for (const Tap& tap : taps) {
            T& sum = result[out.at(n, channel, tap.input)];
            sum = plus(sum, times(ws[kernel.at(c, m, tap.kernel)], value));
          }
        }
      }
    }
  });
}

std::vector<Literal> evaluate_conv_transpose(const EvalContext& ctx) {
  const DType dtype = ctx.node.output().dtype;
  const Literal x = converted(ctx.inputs[0], dtype);
  const Literal w = converted(ctx.inputs[1], dtype);
  const Sizes sizes = ctx.output_sizes();
  const Window window = window_of(ctx.node, spatial_of(w.sizes()));
  return with_number(dtype, [&]<typename T>() {
    std::vector<T> result = start_with_bias<T>(ctx, dtype, sizes);
    spread(window, x, w, ctx.node.integer("groups"), sizes, result);
    return std::vector<Literal>{literal_of(dtype, sizes, result)};
  });
}

}  // namespace

OpDef conv_transpose_op() {
  std::vector<AttrSpec> attrs = window_attrs();
  attrs.push_back({"output_padding", AttrKind::Ints, {}});
  attrs.push_back({"groups", AttrKind::Int, std::int64_t{1}});
  return {.name = "conv_transpose",
          .operands = {{"x"}, {"w"}, {"bias", OperandSpec::Arity::Optional}},
          .attrs = std::move(attrs),
          .infer = infer_conv_transpose,
          .evaluate = evaluate_conv_transpose,
          .lowering = {.decompose = decompose_conv_dtypes, .nest = "conv_transpose"},
          .apart = {{Apart::kAllButFirst, {Apart::kAllButFirst}}}};
}

}  // namespace heddle::ir::ops
