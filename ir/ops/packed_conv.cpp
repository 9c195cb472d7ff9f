// packed_conv: a convolution with the channels last and no padding, its weights in panels as those of packed_matmul.
//
//   x                     f32[n, in..., c], one to any number of spatial dimensions
//   panels                f32[g, p, q, w]: for each of g groups of channels the matrix [taps * c / g, columns / g] that what a window
//                         holds of the group is multiplied by, tap behind tap in row-major order of the kernel
//   columns               channels of the result, of all groups
//   kernel, strides,
//   dilations             one entry a spatial dimension; see window.h
//   result                f32[n, out..., columns]
//
// Sums are those of conv. The lowering makes such calls from conv with constant weights; panels are packed once, when the program
// is built.
//
// Constraints. infer() checks them in this order; tests are named packed_conv_c1 ...
//   C1  x and panels are f32
//   C2  x has at least three dimensions, panels have four
//   C3  kernel, strides and dilations have one entry a spatial dimension, 1 or more
//   C4  g matrices of q rows hold a window
//   C5  columns are a multiple of g
//   C6  p panels of w columns hold the columns of a group, and p - 1 do not
//   C7  the kernel fits into x
//
// Memory: the result is fresh.
// Source: as conv and packed_matmul.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/matmul_ops.h"
#include "ir/ops/window.h"

namespace heddle::ir::ops {
namespace {

constexpr const char* kWindow[] = {"kernel", "strides", "dilations"};

void check_operand_dtypes(const InferContext& ctx) {
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    const DType got = ctx.meta(k).dtype;
    if (got != DType::F32)
      ctx.fail_dtype("C1 x and panels are f32", "f32", std::string(name_of(got)));
  }
  if (ctx.meta(0).rank() >= 3 && ctx.meta(1).rank() == 4) return;
  ctx.fail_shape("C2 x has at least three dimensions, panels have four",
                 "sizes [n, in..., c] and [g, p, q, w]",
                 text_of(ctx.meta(0).sizes) + " and " + text_of(ctx.meta(1).sizes));
}

void check_windows(const InferContext& ctx, std::size_t spatial) {
  for (const char* name : kWindow) {
    const auto& values = ctx.ints(name);
    if (values.size() == spatial &&
        std::ranges::all_of(values, [](std::int64_t value) { return value >= 1; }))
      continue;
    fail_argument(ctx,
                  "C3 kernel, strides and dilations have one entry a spatial dimension, 1 or more",
                  std::to_string(spatial) + " " + name + " of 1 or more", text_of(values));
  }
}

std::vector<TensorMeta> infer_packed_conv(const InferContext& ctx) {
  check_operand_dtypes(ctx);
  const Dims& x = ctx.meta(0).sizes;
  const Dims& panels = ctx.meta(1).sizes;
  const std::size_t spatial = x.size() - 2;
  check_windows(ctx, spatial);
  const auto& kernel = ctx.ints("kernel");
  ctx.require_equal(x.back() * element_count(kernel), panels[0] * panels[2],
                    "C4 g matrices of q rows hold a window");
  const SymExpr columns = ctx.integer("columns");
  ctx.require_equal(0, mod(columns, panels[0]), "C5 columns are a multiple of g");
  constexpr std::string_view kC6 =
      "C6 p panels of w columns hold the columns of a group, and p - 1 do not";
  require_le(ctx, 1, panels[3], kC6, "at least 1 column a panel", panels[3].to_string());
  ctx.require_equal(ceildiv(floordiv(columns, panels[0]), panels[3]), panels[1], kC6);
  Dims sizes{x[0]};
  for (std::size_t d = 0; d < spatial; ++d) {
    const SymExpr reach = (kernel[d] - 1) * ctx.ints("dilations")[d] + 1;
    require_le(ctx, reach, x[d + 1], "C7 the kernel fits into x",
               "a size of at least " + reach.to_string(), seen(ctx.env, x[d + 1]).to_string());
    sizes.push_back(floordiv(x[d + 1] - reach, ctx.ints("strides")[d]) + 1);
  }
  sizes.push_back(columns);
  return one(fresh(ctx, DType::F32, std::move(sizes)));
}

/// Where elements of panels [g, p, q, w] lie.
struct Panels {
  Sizes sizes;
  std::size_t at(std::int64_t group, std::int64_t row, std::int64_t column) const {
    const std::int64_t panel = group * sizes[1] + column / sizes[3];
    return static_cast<std::size_t>((panel * sizes[2] + row) * sizes[3] + column % sizes[3]);
  }
};

std::vector<double> convolve_panels(const EvalContext& ctx, const Sizes& result) {
  const Literal& x = ctx.inputs[0];
  const Panels panels{ctx.inputs[1].sizes()};
  const Sizes none(result.size() - 2, 0);
  const Window window{.kernel = ctx.node.ints("kernel"),
                      .strides = ctx.node.ints("strides"),
                      .pads_low = none,
                      .pads_high = none,
                      .dilations = ctx.node.ints("dilations")};
  const std::vector<double> xs = dense<double>(x);
  const std::vector<double> weights = dense<double>(ctx.inputs[1]);
  const std::int64_t channels = x.sizes().back();
  const std::int64_t depth = channels / panels.sizes[0];
  const std::int64_t columns = result.back() / panels.sizes[0];
  const Sizes in(x.sizes().begin() + 1, x.sizes().end() - 1);
  const Sizes out(result.begin() + 1, result.end() - 1);
  std::vector<double> sums;
  for (std::int64_t n = 0; n < result[0]; ++n)
    for_each_index(out, [&](std::int64_t, const Sizes& at) {
      const std::vector<Tap> taps = taps_inside(window, at, in);
      for (std::int64_t m = 0; m < result.back(); ++m) {
        const std::int64_t group = m / columns;
        double sum = 0;
        for (const Tap& tap : taps) {
          const std::int64_t from = (n * element_count(in) + tap.input) * channels + group * depth;
          for (std::int64_t c = 0; c < depth; ++c)
            sum = plus(sum, times(weights[panels.at(group, tap.kernel * depth + c, m % columns)],
                                  xs[static_cast<std::size_t>(from + c)]));
        }
        sums.push_back(sum);
      }
    });
  return sums;
}

std::vector<Literal> evaluate_packed_conv(const EvalContext& ctx) {
  const Sizes sizes = ctx.output_sizes();
  return {literal_of(DType::F32, sizes, convolve_panels(ctx, sizes))};
}

}  // namespace

OpDef packed_conv_op() {
  std::vector<AttrSpec> attrs;
  for (const char* name : kWindow) attrs.push_back({name, AttrKind::Ints, {}});
  attrs.push_back({"columns", AttrKind::Int, {}});
  return {
      .name = "packed_conv",
      .operands = {{"x"}, {"panels"}},
      .attrs = std::move(attrs),
      .infer = infer_packed_conv,
      .evaluate = evaluate_packed_conv,
      .lowering = {.nest = "packed_conv"},
  };
}

}  // namespace heddle::ir::ops
