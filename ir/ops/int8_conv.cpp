// int8_conv: an exact convolution of bytes, its sums in i32.
//
//   x                     T[n, c, in...], T being u8 or i8, one to any number of spatial dimensions
//   w                     U[m, c, kernel...], U being u8 or i8
//   zero                  T[]: what lies outside of x
//   strides, pads_low,
//   pads_high, dilations  one entry a spatial dimension; see window.h
//   channels_last         x is [n, in..., c] and the result [n, out..., m]; w stays what it is
//   result                i32[n, m, out...]
//
// Sums wrap modulo 2^32. The lowering makes such calls from convolutions of quantised tensors, for devices that multiply bytes.
//
// Constraints. infer() checks them in this order; tests are named int8_conv_c1 ...
//   C1  x and w are u8 or i8
//   C2  zero is of x's dtype and has no dimensions
//   C3  x and w have the same number of dimensions, at least three
//   C4  strides, pads_low, pads_high and dilations have one entry a spatial dimension
//   C5  strides and dilations are at least 1, pads at least 0
//   C6  the channels of x are those of w
//   C7  the kernel fits into the padded input
//
// Memory: the result is fresh.
// Source: ONNX, "ConvInteger-10", without zero points of weights.
#include <algorithm>
#include <numeric>

#include "ir/ops/common.h"
#include "ir/ops/conv_ops.h"

namespace heddle::ir::ops {
namespace {

void check_operands(const InferContext& ctx) {
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}})
    if (!is_byte(ctx.meta(k).dtype))
      ctx.fail_dtype("C1 x and w are u8 or i8", "u8 or i8",
                     std::string(name_of(ctx.meta(k).dtype)));
  constexpr std::string_view kC2 = "C2 zero is of x's dtype and has no dimensions";
  if (ctx.meta(2).dtype != ctx.meta(0).dtype)
    ctx.fail_dtype(kC2, std::string(name_of(ctx.meta(0).dtype)),
                   std::string(name_of(ctx.meta(2).dtype)));
  if (ctx.meta(2).rank() != 0) ctx.fail_shape(kC2, "[]", text_of(ctx.meta(2).sizes));
  if (ctx.meta(0).rank() < 3 || ctx.meta(0).rank() != ctx.meta(1).rank())
    ctx.fail_shape("C3 x and w have the same number of dimensions, at least three",
                   "sizes [n, c, in...] and [m, c, kernel...]",
                   text_of(ctx.meta(0).sizes) + " and " + text_of(ctx.meta(1).sizes));
}

std::vector<TensorMeta> infer_int8_conv(const InferContext& ctx) {
  check_operands(ctx);
  const bool last = ctx.flag("channels_last");
  const Dims x = last ? channels_second(ctx.meta(0).sizes) : ctx.meta(0).sizes;
  const Dims& w = ctx.meta(1).sizes;
  const std::size_t spatial = x.size() - 2;
  check_window(ctx, spatial,
               "C4 strides, pads_low, pads_high and dilations have one entry a spatial dimension",
               "C5 strides and dilations are at least 1, pads at least 0");
  ctx.require_equal(w[1], x[1], "C6 the channels of x are those of w");
  Dims sizes{x[0], w[0]};
  for (std::size_t d = 0; d < spatial; ++d)
    sizes.push_back(
        window_count(ctx, d, x[d + 2], w[d + 2], "C7 the kernel fits into the padded input"));
  if (last) std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  return one(fresh(ctx, DType::I32, std::move(sizes)));
}

/// Where element (n, channel, position) lies in a tensor of sizes [n, channels, spatial...], or with the channels last.
std::size_t place(const Sizes& sizes, bool last, std::int64_t n, std::int64_t channel,
                  std::int64_t position) {
  const std::int64_t positions = element_count(spatial_of(sizes));
  return static_cast<std::size_t>(last ? (n * positions + position) * sizes[1] + channel
                                       : (n * sizes[1] + channel) * positions + position);
}

std::vector<Literal> evaluate_int8_conv(const EvalContext& ctx) {
  const bool last = ctx.node.flag("channels_last");
  const Sizes in = last ? channels_second(ctx.inputs[0].sizes()) : ctx.inputs[0].sizes();
  const Sizes out = last ? channels_second(ctx.output_sizes()) : ctx.output_sizes();
  const Sizes& weights = ctx.inputs[1].sizes();
  const Window window = window_of(ctx.node, spatial_of(weights));
  const std::int64_t taps = element_count(window.kernel);
  const std::vector<std::int64_t> xs = dense<std::int64_t>(ctx.inputs[0]);
  const std::vector<std::int64_t> ws = dense<std::int64_t>(ctx.inputs[1]);
  const std::int64_t zero = ctx.inputs[2].at_int(0);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(element_count(out)));
  for_each_index(spatial_of(out), [&](std::int64_t position, const Sizes& at) {
    const std::vector<Tap> inside = taps_inside(window, at, spatial_of(in));
    for (std::int64_t n = 0; n < out[0]; ++n)
      for (std::int64_t m = 0; m < out[1]; ++m) {
        std::int64_t& sum = sums[place(out, last, n, m, position)];
        for (std::int64_t c = 0; c < in[1]; ++c) {
          const auto filter = ws.begin() + (m * in[1] + c) * taps;
          sum += zero * std::accumulate(filter, filter + taps, std::int64_t{0});
          for (const Tap& tap : inside)
            sum += filter[tap.kernel] * (xs[place(in, last, n, c, tap.input)] - zero);
        }
      }
  });
  return {literal_of(DType::I32, ctx.output_sizes(), sums)};
}

/// %r = add(conv(sub(convert(%x), %zero), convert(%w)), mul(%zero, sums of filters)), in i32
std::vector<Value> decompose_int8_conv(DecomposeContext& ctx) {
  const Value w = emit_convert(ctx, ctx.inputs[1], DType::I32);
  const Value zero = emit_convert(ctx, ctx.inputs[2], DType::I32);
  const Value x = ctx.emit("sub", {emit_convert(ctx, ctx.inputs[0], DType::I32), zero});
  const Value inside = ctx.emit("conv", {x, w}, ctx.node.attrs());
  const auto rank = static_cast<std::size_t>(w.meta().rank());
  std::vector<std::int64_t> axes(rank - 1);
  std::iota(axes.begin(), axes.end(), 1);
  Value sums = ctx.emit("mul", {zero, ctx.emit("reduce_sum", {w}, {{"axes", axes}})});
  if (!ctx.node.flag("channels_last")) {
    Dims sizes(rank - 1, SymExpr(1));
    sizes[0] = w.meta().sizes[0];
    sums = emit_reshape(ctx, sums, sizes);
  }
  return {ctx.emit("add", {inside, sums})};
}

}  // namespace

OpDef int8_conv_op() {
  std::vector<AttrSpec> attrs = window_attrs();
  attrs.push_back({"channels_last", AttrKind::Bool, false});
  return {.name = "int8_conv",
          .operands = {{"x"}, {"w"}, {"zero"}},
          .attrs = std::move(attrs),
          .infer = infer_int8_conv,
          .evaluate = evaluate_int8_conv,
          .lowering = {.decompose = decompose_int8_conv, .nest = "int8_conv"},
          .apart = {{Apart::kAllButFirst, {Apart::kAllButFirst}}}};
}

}  // namespace heddle::ir::ops
