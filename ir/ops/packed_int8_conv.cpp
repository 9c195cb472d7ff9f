// packed_int8_conv: an exact convolution of bytes with the channels last, its weights in panels as those of packed_int8_matmul.
//
//   x                     u8[n, in..., c], one to any number of spatial dimensions
//   panels                i8[p, q, w, 4]: the matrix [taps * c, columns] that a window is multiplied by, tap behind tap in
//                         row-major order of the kernel
//   zero                  u8[]: what lies outside of x
//   pairs_fit             as that of packed_int8_matmul
//   columns               of the matrix: channels of the result
//   kernel, strides,
//   pads_low, pads_high,
//   dilations             one entry a spatial dimension; see window.h
//   result                i32[n, out..., columns]
//
// Sums wrap modulo 2^32. The lowering makes such calls from convolutions of quantised tensors with constant weights.
//
// Constraints. infer() checks them in this order; tests are named packed_int8_conv_c1 ...
//   C1  x and zero are u8 and panels are i8
//   C2  x has at least three dimensions, panels have four, zero has none
//   C3  kernel has one entry a spatial dimension, 1 or more
//   C4  strides, pads_low, pads_high and dilations have one entry a spatial dimension
//   C5  strides and dilations are at least 1, pads at least 0
//   C6  the last dimension of panels is 4
//   C7  q groups of 4 hold a window, and q - 1 do not
//   C8  p panels of w columns hold the columns, and p - 1 do not
//   C9  the kernel fits into the padded input
//   C10 pairs_fit is a bool without dimensions
//
// Memory: the result is fresh.
// Source: as packed_int8_matmul.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/matmul_ops.h"
#include "ir/ops/window.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kTapGroup = 4;

std::int64_t taps_of(const Sizes& kernel) { return element_count(kernel); }

void check_dtypes(const InferContext& ctx) {
  constexpr std::string_view kC1 = "C1 x and zero are u8 and panels are i8";
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    const DType wanted = k == 1 ? DType::I8 : DType::U8;
    const DType got = ctx.meta(k).dtype;
    if (got != wanted) ctx.fail_dtype(kC1, std::string(name_of(wanted)), std::string(name_of(got)));
  }
}

void check_ranks(const InferContext& ctx) {
  const bool right = ctx.meta(0).rank() >= 3 && ctx.meta(1).rank() == 4 && ctx.meta(2).rank() == 0;
  if (right) return;
  ctx.fail_shape("C2 x has at least three dimensions, panels have four, zero has none",
                 "sizes [n, in..., c], [p, q, w, 4] and []",
                 text_of(ctx.meta(0).sizes) + ", " + text_of(ctx.meta(1).sizes) + " and " +
                     text_of(ctx.meta(2).sizes));
}

void check_taps(const InferContext& ctx, std::size_t spatial) {
  const auto& kernel = ctx.ints("kernel");
  if (kernel.size() == spatial &&
      std::ranges::all_of(kernel, [](std::int64_t size) { return size >= 1; }))
    return;
  fail_argument(ctx, "C3 kernel has one entry a spatial dimension, 1 or more",
                std::to_string(spatial) + " entries of 1 or more", text_of(kernel));
}

std::vector<TensorMeta> infer_packed_int8_conv(const InferContext& ctx) {
  check_dtypes(ctx);
  check_ranks(ctx);
  const Dims& x = ctx.meta(0).sizes;
  const Dims& panels = ctx.meta(1).sizes;
  const std::size_t spatial = x.size() - 2;
  check_taps(ctx, spatial);
  check_window(ctx, spatial,
               "C4 strides, pads_low, pads_high and dilations have one entry a spatial dimension",
               "C5 strides and dilations are at least 1, pads at least 0");
  ctx.require_equal(kTapGroup, panels[3], "C6 the last dimension of panels is 4");
  const auto& kernel = ctx.ints("kernel");
  ctx.require_equal(ceildiv(x.back() * taps_of(kernel), kTapGroup), panels[1],
                    "C7 q groups of 4 hold a window, and q - 1 do not");
  const SymExpr columns = ctx.integer("columns");
  constexpr std::string_view kC8 = "C8 p panels of w columns hold the columns, and p - 1 do not";
  require_le(ctx, 1, panels[2], kC8, "at least 1 column a panel", panels[2].to_string());
  ctx.require_equal(ceildiv(columns, panels[2]), panels[0], kC8);
  Dims sizes{x[0]};
  for (std::size_t d = 0; d < spatial; ++d)
    sizes.push_back(
        window_count(ctx, d, x[d + 1], kernel[d], "C9 the kernel fits into the padded input"));
  sizes.push_back(columns);
  require_pairs_fit(ctx, 3, "C10 pairs_fit is a bool without dimensions");
  return one(fresh(ctx, DType::I32, std::move(sizes)));
}

/// What the windows of x hold, [n, out..., taps * c].
Literal windows_of(const EvalContext& ctx, const Sizes& result) {
  const Literal& x = ctx.inputs[0];
  const Window window = window_of(ctx.node, ctx.node.ints("kernel"));
  const std::vector<std::int64_t> xs = dense<std::int64_t>(x);
  const std::int64_t channels = x.sizes().back();
  const Sizes in(x.sizes().begin() + 1, x.sizes().end() - 1);
  const Sizes out(result.begin() + 1, result.end() - 1);
  Sizes sizes(result.begin(), result.end() - 1);
  sizes.push_back(taps_of(window.kernel) * channels);
  std::vector<std::int64_t> values(static_cast<std::size_t>(element_count(sizes)),
                                   ctx.inputs[2].at_int(0));
  for (std::int64_t n = 0; n < result[0]; ++n)
    for_each_index(out, [&](std::int64_t position, const Sizes& at) {
      const std::int64_t row = (n * element_count(out) + position) * sizes.back();
      for (const Tap& tap : taps_inside(window, at, in))
        for (std::int64_t c = 0; c < channels; ++c)
          values[static_cast<std::size_t>(row + tap.kernel * channels + c)] =
              xs[static_cast<std::size_t>((n * element_count(in) + tap.input) * channels + c)];
    });
  return literal_of(DType::I32, sizes, values);
}

std::vector<Literal> evaluate_packed_int8_conv(const EvalContext& ctx) {
  const Sizes sizes = ctx.output_sizes();
  const Literal windows = windows_of(ctx, sizes);
  return {matrix_product(
      windows, matrix_of_panels(ctx.inputs[1], DType::I32, windows.sizes().back(), sizes.back()),
      sizes)};
}

}  // namespace

OpDef packed_int8_conv_op() {
  std::vector<AttrSpec> attrs = window_attrs();
  attrs.push_back({"kernel", AttrKind::Ints, {}});
  attrs.push_back({"columns", AttrKind::Int, {}});
  return {
      .name = "packed_int8_conv",
      .operands = {{"x"}, {"panels"}, {"zero"}, {"pairs_fit", OperandSpec::Arity::Optional}},
      .attrs = std::move(attrs),
      .infer = infer_packed_int8_conv,
      .evaluate = evaluate_packed_int8_conv,
      .lowering = {.nest = "packed_int8_conv"},
  };
}

}  // namespace heddle::ir::ops
