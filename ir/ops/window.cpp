#include "ir/ops/window.h"

#include <algorithm>

#include "ir/ops/common.h"

namespace heddle::ir::ops {
namespace {

constexpr std::string_view kNames[] = {"strides", "pads_low", "pads_high", "dilations"};

void check_range(const InferContext& ctx, std::string_view name, std::int64_t least,
                 std::string_view label) {
  const auto& values = ctx.ints(name);
  if (std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v >= least; })) return;
  fail_argument(ctx, label, std::string(name) + " of " + std::to_string(least) + " or more",
                text_of(values));
}

}  // namespace

std::vector<AttrSpec> window_attrs() {
  std::vector<AttrSpec> attrs;
  for (const std::string_view name : kNames) attrs.push_back({name, AttrKind::Ints, {}});
  return attrs;
}

Window window_of(const Node& node, Sizes kernel) {
  return {.kernel = std::move(kernel),
          .strides = node.ints("strides"),
          .pads_low = node.ints("pads_low"),
          .pads_high = node.ints("pads_high"),
          .dilations = node.ints("dilations")};
}

void check_window(const InferContext& ctx, std::size_t spatial, std::string_view count,
                  std::string_view range) {
  for (const std::string_view name : kNames) {
    const auto& values = ctx.ints(name);
    if (values.size() == spatial) continue;
    fail_argument(ctx, count, std::to_string(spatial) + " " + std::string(name), text_of(values));
  }
  check_range(ctx, "strides", 1, range);
  check_range(ctx, "pads_low", 0, range);
  check_range(ctx, "pads_high", 0, range);
  check_range(ctx, "dilations", 1, range);
}

SymExpr window_extent(const InferContext& ctx, std::size_t d, const SymExpr& kernel) {
  return SymExpr(ctx.ints("dilations")[d]) * (kernel - 1) + 1;
}

SymExpr window_count(const InferContext& ctx, std::size_t d, const SymExpr& in,
                     const SymExpr& kernel, std::string_view fits) {
  const SymExpr extent = window_extent(ctx, d, kernel);
  const SymExpr padded = in + ctx.ints("pads_low")[d] + ctx.ints("pads_high")[d];
  require_le(ctx, extent, padded, fits,
             "a padded size of at least " + seen(ctx.env, extent).to_string(),
             seen(ctx.env, padded).to_string());
  return floordiv(padded - extent, ctx.ints("strides")[d]) + 1;
}

std::vector<Tap> taps_inside(const Window& window, const Sizes& at, const Sizes& sizes) {
  std::vector<Tap> taps;
  for_each_index(window.kernel, [&](std::int64_t kernel, const Sizes& tap) {
    std::int64_t input = 0;
    for (std::size_t d = 0; d < tap.size(); ++d) {
      const std::int64_t position =
          at[d] * window.strides[d] - window.pads_low[d] + tap[d] * window.dilations[d];
      if (position < 0 || position >= sizes[d]) return;
      input = input * sizes[d] + position;
    }
    taps.push_back({input, kernel});
  });
  return taps;
}

}  // namespace heddle::ir::ops
