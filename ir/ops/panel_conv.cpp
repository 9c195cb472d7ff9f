#include "ir/ops/panel_conv.h"

#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/matmul_ops.h"
#include "ir/ops/window.h"

namespace heddle::ir::ops {
namespace {

void check_taps(const InferContext& ctx, std::size_t spatial) {
  const auto& kernel = ctx.ints("kernel");
  if (kernel.size() == spatial &&
      std::ranges::all_of(kernel, [](std::int64_t size) { return size >= 1; }))
    return;
  fail_argument(ctx, "C3 kernel has one entry a spatial dimension, 1 or more",
                std::to_string(spatial) + " entries of 1 or more", text_of(kernel));
}

}  // namespace

std::vector<AttrSpec> panel_conv_attrs() {
  std::vector<AttrSpec> attrs = window_attrs();
  attrs.push_back({"kernel", AttrKind::Ints, {}});
  attrs.push_back({"columns", AttrKind::Int, {}});
  return attrs;
}

std::vector<TensorMeta> panel_conv(const InferContext& ctx, std::int64_t group, DType result) {
  const Dims& x = ctx.meta(0).sizes;
  const Dims& panels = ctx.meta(1).sizes;
  const std::size_t spatial = x.size() - 2;
  check_taps(ctx, spatial);
  check_window(ctx, spatial,
               "C4 strides, pads_low, pads_high and dilations have one entry a spatial dimension",
               "C5 strides and dilations are at least 1, pads at least 0");
  const std::string of_group = std::to_string(group);
  ctx.require_equal(group, panels[3], "C6 the last dimension of panels is " + of_group);
  const auto& kernel = ctx.ints("kernel");
  ctx.require_equal(ceildiv(x.back() * element_count(kernel), group), panels[1],
                    "C7 q groups of " + of_group + " hold a window, and q - 1 do not");
  const SymExpr columns = ctx.integer("columns");
  constexpr std::string_view kC8 = "C8 p panels of w columns hold the columns, and p - 1 do not";
  require_le(ctx, 1, panels[2], kC8, "at least 1 column a panel", panels[2].to_string());
  ctx.require_equal(ceildiv(columns, panels[2]), panels[0], kC8);
  Dims sizes{x[0]};
  for (std::size_t d = 0; d < spatial; ++d)
    sizes.push_back(
        window_count(ctx, d, x[d + 1], kernel[d], "C9 the kernel fits into the padded input"));
  sizes.push_back(columns);
  return one(fresh(ctx, result, std::move(sizes)));
}

Literal panel_conv_windows(const EvalContext& ctx, std::int64_t outside) {
  const DType dtype = ctx.node.output().dtype;
  const Literal x = converted(ctx.inputs[0], dtype);
  const Sizes result = ctx.output_sizes();
  const Window window = window_of(ctx.node, ctx.node.ints("kernel"));
  const std::int64_t channels = x.sizes().back();
  const Sizes in(x.sizes().begin() + 1, x.sizes().end() - 1);
  const Sizes out(result.begin() + 1, result.end() - 1);
  Sizes sizes(result.begin(), result.end() - 1);
  sizes.push_back(element_count(window.kernel) * channels);
  return with_number(dtype, [&]<typename T>() {
    const std::vector<T> xs = dense<T>(x);
    std::vector<T> values(static_cast<std::size_t>(element_count(sizes)), static_cast<T>(outside));
    for (std::int64_t n = 0; n < result[0]; ++n)
      for_each_index(out, [&](std::int64_t position, const Sizes& at) {
        const std::int64_t row = (n * element_count(out) + position) * sizes.back();
        for (const Tap& tap : taps_inside(window, at, in))
          for (std::int64_t c = 0; c < channels; ++c)
            values[static_cast<std::size_t>(row + tap.kernel * channels + c)] =
                xs[static_cast<std::size_t>((n * element_count(in) + tap.input) * channels + c)];
      });
    return literal_of(dtype, sizes, values);
  });
}

}  // namespace heddle::ir::ops
