// conv: convolution, as neural networks use the word (the kernel is not flipped).
//
//   x                     T[N, C, in...], one to any number of spatial dimensions
//   w                     U[M, C / groups, kernel...]
//   bias                  optional, V[M]; absent: 0
//   strides, pads_low,
//   pads_high, dilations  one entry a spatial dimension; see window.h
//   groups                runs of C / groups input channels that make M / groups output channels
//                         each
//   channels_last         x is [N, in..., C] and the result [N, out..., M]; w stays what it is
//   tf32                  elements of f32 may be rounded to tf32 first
//   bf16                  both operands may be rounded to bf16 first, and numbers below 2^-126 count as 0
//   result                promote(T, U, V)[N, M, out...]
//
//   out_d = floor((in_d + low_d + high_d - dilation_d * (kernel_d - 1) - 1) / stride_d) + 1
//   result[n, m, o] = bias[m] + sum over c, tap of w[m, c, tap] * x[n, group(m) * C / groups + c,
//                     o * stride - low + tap * dilation], taps outside x counting 0
//
// Operands are converted to the result's dtype first. Products are summed in accumulator_of(result
// dtype): f32 for f16 and bf16; integers wrap. Taps in the padding add 0; whether an
// infinite or NaN w shows where there are any is not defined.
//
// Constraints. infer() checks them in this order; tests are named conv_c1 ...
//   C1  x, w and bias are numbers
//   C2  x and w have the same number of dimensions, at least three
//   C3  strides, pads_low, pads_high and dilations have one entry a spatial dimension
//   C4  strides and dilations are at least 1, pads at least 0
//   C5  groups is at least 1
//   C6  the channels of x are those of w times groups
//   C7  the output channels M are a multiple of groups
//   C8  bias has sizes [M]
//   C9  the kernel fits into the padded input
//   C10 tf32 is for a result of f32
//   C11 bf16 is for a result of f32 or bf16
//
// Memory: the result is fresh.
// Lowering: nest and library "conv" take operands of the result's dtype; decompose converts the
// others.
// Source: ONNX Conv-11.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/conv_ops.h"

namespace heddle::ir::ops {
namespace {

/// Sizes [N, C, in...] as [N, in..., C].
template <typename T>
std::vector<T> channels_to_the_end(std::vector<T> sizes) {
  std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  return sizes;
}

std::vector<TensorMeta> infer_conv(const InferContext& ctx) {
  const std::size_t spatial = check_conv_operands(ctx);
  const std::int64_t groups = check_groups(ctx);
  const bool last = ctx.flag("channels_last");
  const Dims x = last ? channels_second(ctx.meta(0).sizes) : ctx.meta(0).sizes;
  const Dims& w = ctx.meta(1).sizes;
  ctx.require_equal(w[1] * groups, x[1], "C6 the channels of x are those of w times groups");
  require_multiple(ctx, w[0], groups, "C7 the output channels M are a multiple of groups");
  check_bias(ctx, w[0], "C8 bias has sizes [M]");
  Dims sizes = {x[0], w[0]};
  for (std::size_t d = 0; d < spatial; ++d) {
    sizes.push_back(
        window_count(ctx, d, x[d + 2], w[d + 2], "C9 the kernel fits into the padded input"));
  }
  const DType dtype = conv_dtype(ctx);
  if (ctx.flag("tf32") && dtype != DType::F32)
    ctx.fail_dtype("C10 tf32 is for a result of f32", "f32", std::string(name_of(dtype)));
  if (ctx.flag("bf16") && dtype != DType::F32 && dtype != DType::BF16)
    ctx.fail_dtype("C11 bf16 is for a result of f32 or bf16", "f32 or bf16",
                   std::string(name_of(dtype)));
  return one(fresh(ctx, dtype, last ? channels_to_the_end(sizes) : sizes));
}

/// Where the elements of x or of the result lie.
struct Planes {
  Sizes sizes;  ///< [N, channels, spatial...]
  bool last;    ///< channels lie in the last dimension
  std::size_t at(std::int64_t n, std::int64_t channel, std::int64_t position) const {
    const std::int64_t positions = element_count(spatial_of(sizes));
    const std::int64_t k = last ? (n * positions + position) * sizes[1] + channel
                                : (n * sizes[1] + channel) * positions + position;
    return static_cast<std::size_t>(k);
  }
};

Planes planes_of(const Sizes& sizes, bool last) {
  return {last ? channels_second(sizes) : sizes, last};
}

/// Adds to `result` what the windows of `x` give.
template <typename T>
void convolve(const Window& window, const Literal& x, const Literal& w, std::int64_t groups,
              const Planes& out, std::vector<T>& result) {
  const Planes in = planes_of(x.sizes(), out.last);
  const AxisCut kernel = cut_at(w.sizes(), 1);
  const std::int64_t channels_out = out.sizes[1] / groups;
  const std::vector<T> xs = dense<T>(x);
  const std::vector<T> ws = dense<T>(w);
  for_each_index(spatial_of(out.sizes), [&](std::int64_t position, const Sizes& at) {
    const std::vector<Tap> taps = taps_inside(window, at, spatial_of(in.sizes));
    for (std::int64_t n = 0; n < out.sizes[0]; ++n) {
      for (std::int64_t m = 0; m < out.sizes[1]; ++m) {
        T& sum = result[out.at(n, m, position)];
        for (std::int64_t c = 0; c < kernel.length; ++c) {
          const std::int64_t channel = m / channels_out * kernel.length + c;
          for (const Tap& tap : taps) {
            const T weight = ws[kernel.at(m, c, tap.kernel)];
            sum = plus(sum, times(weight, xs[in.at(n, channel, tap.input)]));
          }
        }
      }
    }
  });
}

std::vector<Literal> evaluate_conv(const EvalContext& ctx) {
  const DType dtype = ctx.node.output().dtype;
  const Literal x = converted(ctx.inputs[0], dtype);
  const Literal w = converted(ctx.inputs[1], dtype);
  const Sizes sizes = ctx.output_sizes();
  const bool last = ctx.node.flag("channels_last");
  const std::size_t axis = last ? sizes.size() - 1 : 1;
  const Window window = window_of(ctx.node, spatial_of(w.sizes()));
  return with_number(dtype, [&]<typename T>() {
    std::vector<T> result = start_with_bias<T>(ctx, dtype, sizes, axis);
    convolve(window, x, w, ctx.node.integer("groups"), planes_of(sizes, last), result);
    return std::vector<Literal>{literal_of(dtype, sizes, result)};
  });
}

}  // namespace

OpDef conv_op() {
  std::vector<AttrSpec> attrs = window_attrs();
  attrs.push_back({"groups", AttrKind::Int, std::int64_t{1}});
  attrs.push_back({"channels_last", AttrKind::Bool, false});
  attrs.push_back({"tf32", AttrKind::Bool, false});
  attrs.push_back({"bf16", AttrKind::Bool, false});
  return {.name = "conv",
          .operands = {{"x"}, {"w"}, {"bias", OperandSpec::Arity::Optional}},
          .attrs = std::move(attrs),
          .infer = infer_conv,
          .evaluate = evaluate_conv,
          .lowering = {.decompose = decompose_conv_dtypes, .nest = "conv", .library = "conv"},
          .apart = {{Apart::kAllButFirst, {Apart::kAllButFirst}}}};
}

}  // namespace heddle::ir::ops
