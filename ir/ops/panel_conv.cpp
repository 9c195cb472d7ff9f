#include "ir/ops/panel_conv.h"

#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/matmul_ops.h"
#include "ir/ops/window.h"

namespace heddle::ir::ops {
namespace {

/// What the columns of panels are multiplied by.
struct GroupedColumns {
  std::int64_t groups, taps, channels, columns;
  std::int64_t run;    ///< taps that lie behind each other in panels
  std::int64_t align;  ///< where the next ones begin
};

/// Rows of the matrix of a group in panels for each run of taps, zeros behind them included.
std::int64_t rows_of_run(std::int64_t elements, std::int64_t align) {
  return (elements + align - 1) / align * align;
}

void check_depth(const InferContext& ctx, const SymExpr& channels, std::int64_t group) {
  const std::string label = "C8 align is at least 1, q groups of " + std::to_string(group) +
                            " hold a window, and q - 1 do not";
  const std::int64_t align = ctx.integer("align");
  if (align < 1) fail_argument(ctx, label, "1 or more", std::to_string(align));
  const auto& kernel = ctx.ints("kernel");
  const SymExpr run_rows = ceildiv(channels * kernel.back(), align) * align;
  const SymExpr rows = run_rows * (element_count(kernel) / kernel.back());
  ctx.require_equal(ceildiv(rows, group), ctx.meta(1).sizes[1], label);
}

void check_taps(const InferContext& ctx, std::size_t spatial) {
  const auto& kernel = ctx.ints("kernel");
  if (kernel.size() == spatial &&
      std::ranges::all_of(kernel, [](std::int64_t size) { return size >= 1; }))
    return;
  fail_argument(ctx, "C3 kernel has one entry a spatial dimension, 1 or more",
                std::to_string(spatial) + " entries of 1 or more", text_of(kernel));
}

std::int64_t groups_of_panels(const InferContext& ctx) {
  const std::int64_t groups = ctx.integer("groups");
  constexpr std::string_view kC7 = "C7 groups is at least 1 and divides c and columns";
  if (groups < 1) fail_argument(ctx, kC7, "1 or more", std::to_string(groups));
  const SymExpr& channels = ctx.meta(0).sizes.back();
  ctx.require_equal(floordiv(channels, groups) * groups, channels, kC7);
  const std::int64_t columns = ctx.integer("columns");
  if (columns % groups != 0)
    fail_argument(ctx, kC7, "a divisor of " + std::to_string(columns), std::to_string(groups));
  return groups;
}

/// Of the matrix of each group in `panels`, one matrix of all channels by all columns, 0 where a column is of another group.
Literal matrix_of_groups(const Literal& panels, DType dtype, const GroupedColumns& of) {
  const std::int64_t group_channels = of.channels / of.groups;
  const std::int64_t group_columns = of.columns / of.groups;
  const std::int64_t width = panels.sizes()[2];
  // Columns of panels, those that fill the last one of a group too.
  const std::int64_t padded = panels.sizes()[0] / of.groups * width;
  const std::int64_t run = of.run * group_channels, run_rows = rows_of_run(run, of.align);
  const Literal packed =
      matrix_of_panels(panels, dtype, of.taps / of.run * run_rows, padded * of.groups);
  return with_number(dtype, [&]<typename T>() {
    const std::vector<T> from = dense<T>(packed);
    std::vector<T> matrix(static_cast<std::size_t>(of.taps * of.channels * of.columns));
    for (std::int64_t tap = 0; tap < of.taps; ++tap)
      for (std::int64_t c = 0; c < group_channels; ++c)
        for (std::int64_t j = 0; j < of.columns; ++j) {
          const std::int64_t g = j / group_columns;
          const std::int64_t row = tap * of.channels + g * group_channels + c;
          const std::int64_t in_run = tap % of.run * group_channels + c;
          const std::int64_t from_row = tap / of.run * run_rows + in_run;
          const std::int64_t place = from_row * padded * of.groups + g * padded;
          matrix[static_cast<std::size_t>(row * of.columns + j)] =
              from[static_cast<std::size_t>(place + j % group_columns)];
        }
    return literal_of(dtype, {of.taps * of.channels, of.columns}, matrix);
  });
}

}  // namespace

std::vector<AttrSpec> panel_conv_attrs() {
  std::vector<AttrSpec> attrs = window_attrs();
  attrs.push_back({"kernel", AttrKind::Ints, {}});
  attrs.push_back({"columns", AttrKind::Int, {}});
  attrs.push_back({"groups", AttrKind::Int, std::int64_t{1}});
  attrs.push_back({"align", AttrKind::Int, std::int64_t{1}});
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
  const SymExpr columns = ctx.integer("columns");
  const std::int64_t groups = groups_of_panels(ctx);
  const SymExpr channels = floordiv(x.back(), groups);
  check_depth(ctx, channels, group);
  constexpr std::string_view kC9 =
      "C9 each group's share of the p panels of w columns holds its columns, and one less does not";
  require_le(ctx, 1, panels[2], kC9, "at least 1 column a panel", panels[2].to_string());
  ctx.require_equal(ceildiv(floordiv(columns, groups), panels[2]) * groups, panels[0], kC9);
  Dims sizes{x[0]};
  for (std::size_t d = 0; d < spatial; ++d)
    sizes.push_back(
        window_count(ctx, d, x[d + 1], kernel[d], "C10 the kernel fits into the padded input"));
  sizes.push_back(columns);
  return one(fresh(ctx, result, std::move(sizes)));
}

namespace {

/// What the windows of x hold, `outside` where they reach beyond it: [n, out..., taps * c], of the result's dtype.
Literal windows(const EvalContext& ctx, std::int64_t outside) {
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

}  // namespace

Literal panel_conv_sums(const EvalContext& ctx, std::int64_t outside) {
  const Sizes sizes = ctx.output_sizes();
  const GroupedColumns columns{.groups = ctx.node.integer("groups"),
                               .taps = element_count(ctx.node.ints("kernel")),
                               .channels = ctx.inputs[0].sizes().back(),
                               .columns = sizes.back(),
                               .run = ctx.node.ints("kernel").back(),
                               .align = ctx.node.integer("align")};
  const DType dtype = ctx.node.output().dtype;
  return matrix_product(windows(ctx, outside), matrix_of_groups(ctx.inputs[1], dtype, columns),
                        sizes);
}

}  // namespace heddle::ir::ops
