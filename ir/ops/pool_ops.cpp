#include "ir/ops/pool_ops.h"

#include <algorithm>
#include <functional>

#include "ir/ops/common.h"
#include "ir/ops/families.h"

namespace heddle::ir {
namespace ops {
namespace {

void check_kernel(const InferContext& ctx, std::size_t spatial) {
  const auto& kernel = ctx.ints("kernel");
  const bool positive =
      std::all_of(kernel.begin(), kernel.end(), [](std::int64_t k) { return k >= 1; });
  if (kernel.size() == spatial && positive) return;
  fail_argument(ctx, "C3 kernel has one entry a spatial dimension, 1 or more",
                std::to_string(spatial) + " entries of 1 or more", text_of(kernel));
}

/// Windows along spatial dimension d of size `in`. With ceil_mode: one more where the last does not reach the padded
/// end, unless it would start beyond the input and its low padding. A kernel that is longer than the padded input by
/// so little that the formula gives 0 has no window.
SymExpr pool_count(const InferContext& ctx, std::size_t d, const SymExpr& in) {
  const bool rounds_up = ctx.flag("ceil_mode");
  const std::int64_t stride = ctx.ints("strides")[d];
  const std::int64_t high = ctx.ints("pads_high")[d];
  const SymExpr extent = window_extent(ctx, d, ctx.ints("kernel")[d]);
  const SymExpr start_limit = in + ctx.ints("pads_low")[d];
  const SymExpr padded = start_limit + high;
  const SymExpr least = extent - (rounds_up ? 2 * stride - 1 : stride);
  require_le(ctx, least, padded, "C6 the number of windows is at least 0",
             "a padded size of at least " + least.to_string() + " for a kernel that spans " +
                 extent.to_string(),
             seen(ctx.env, padded).to_string());
  if (!rounds_up) return floordiv(padded - extent, stride) + 1;
  const SymExpr reaching = ceildiv(padded - extent, stride) + 1;
  if (high + stride <= extent.constant()) return reaching;  // starts inside by itself
  return min(reaching, ceildiv(start_limit, stride));
}

}  // namespace

std::vector<std::int64_t> pool_axes(const Attrs& attrs, std::int64_t rank) {
  std::vector<std::int64_t> axes;
  if (const auto given = attrs.find("axes"); given != attrs.end())
    axes = std::get<std::vector<std::int64_t>>(given->second);
  if (!axes.empty()) return axes;
  for (std::int64_t d = 2; d < rank; ++d) axes.push_back(d);
  return axes;
}

std::vector<AttrSpec> ordered_pool_attrs() {
  std::vector<AttrSpec> attrs = pool_attrs();
  attrs.push_back({"axes", AttrKind::Ints, std::vector<std::int64_t>{}});
  return attrs;
}

namespace {

/// The other dimensions, then the spatial ones.
std::vector<std::int64_t> windows_last(const Node& node, std::int64_t rank) {
  const std::vector<std::int64_t> axes = pool_axes(node.attrs(), rank);
  std::vector<std::int64_t> perm;
  for (std::int64_t d = 0; d < rank; ++d)
    if (std::ranges::find(axes, d) == axes.end()) perm.push_back(d);
  perm.insert(perm.end(), axes.begin(), axes.end());
  return perm;
}

}  // namespace

Sizes with_windows_last(const Node& node, const Sizes& sizes) {
  Sizes moved;
  for (const std::int64_t d : windows_last(node, static_cast<std::int64_t>(sizes.size())))
    moved.push_back(sizes[static_cast<std::size_t>(d)]);
  return moved;
}

Literal with_windows_last(const Node& node, const Literal& x) {
  return x.view(with_windows_last(node, x.sizes()), with_windows_last(node, x.strides()), 0);
}

Literal with_windows_in_place(const Node& node, const Literal& result) {
  const auto perm = windows_last(node, static_cast<std::int64_t>(result.sizes().size()));
  Sizes sizes(perm.size());
  Sizes strides(perm.size());
  for (std::size_t k = 0; k < perm.size(); ++k) {
    sizes[static_cast<std::size_t>(perm[k])] = result.sizes()[k];
    strides[static_cast<std::size_t>(perm[k])] = result.strides()[k];
  }
  return result.view(sizes, strides, 0).contiguous();
}

std::optional<Reordered> reorder_pool(const Node& node, std::span<const std::int64_t> perm) {
  const auto rank = static_cast<std::int64_t>(perm.size());
  const std::vector<std::int64_t> axes = pool_axes(node.attrs(), rank);
  std::vector<std::pair<std::int64_t, std::size_t>> places;  // of each axis, in the new order
  for (std::size_t k = 0; k < axes.size(); ++k)
    places.emplace_back(std::ranges::find(perm, axes[k]) - perm.begin(), k);
  std::ranges::sort(places);
  Reordered reordered{node.attrs(), {perm.begin(), perm.end()}};
  std::vector<std::int64_t> moved;
  for (const auto& [place, k] : places) moved.push_back(place);
  for (const std::string_view name : {"kernel", "strides", "pads_low", "pads_high", "dilations"}) {
    std::vector<std::int64_t> entries;
    for (const auto& [place, k] : places) entries.push_back(node.ints(name)[k]);
    reordered.attrs[std::string(name)] = std::move(entries);
  }
  if (moved.front() == 2) moved.clear();
  reordered.attrs["axes"] = std::move(moved);
  return reordered;
}

std::vector<AttrSpec> pool_attrs() {
  std::vector<AttrSpec> attrs = window_attrs();
  attrs.push_back({"kernel", AttrKind::Ints, {}});
  attrs.push_back({"ceil_mode", AttrKind::Bool, false});
  return attrs;
}

Dims pool_sizes(const InferContext& ctx) {
  const Dims& x = ctx.meta(0).sizes;
  if (x.size() < 3) {
    ctx.fail_shape("C2 x has at least three dimensions", "sizes [N, C, ...]",
                   text_of(seen(ctx.env, x)));
  }
  const std::size_t spatial = x.size() - 2;
  const auto rank = static_cast<std::int64_t>(x.size());
  const std::vector<std::int64_t> axes = pool_axes(ctx.attrs, rank);
  const bool ascends = std::ranges::is_sorted(axes, std::less_equal());
  if (axes.size() != spatial || !ascends || axes.front() < 0 || axes.back() >= rank)
    fail_argument(ctx, "C2 axes are all dimensions but two, ascending",
                  std::to_string(spatial) + " dimensions of " + std::to_string(rank),
                  text_of(axes));
  check_kernel(ctx, spatial);
  check_window(ctx, spatial,
               "C4 strides, pads_low, pads_high and dilations have one entry a spatial dimension",
               "C5 strides and dilations are at least 1, pads at least 0");
  Dims sizes = x;
  for (std::size_t d = 0; d < spatial; ++d) {
    SymExpr& size = sizes[static_cast<std::size_t>(axes[d])];
    size = pool_count(ctx, d, size);
  }
  return sizes;
}

}  // namespace ops

std::span<const OpDef> pool_ops() {
  static const OpDef defs[] = {ops::max_pool_op(), ops::max_pool_indices_op(), ops::avg_pool_op()};
  return defs;
}

}  // namespace heddle::ir
