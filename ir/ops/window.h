// Sliding windows over spatial dimensions: what convolution and pooling share.
//
// Dimension d of the input is padded by low_d before and high_d after. The window at output
// position o has kernel_d taps; tap t reads input position o * stride_d - low_d + t * dilation_d.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/ops/dense.h"

namespace heddle::ir::ops {

/// A window with concrete sizes, one entry a spatial dimension.
struct Window {
  Sizes kernel;
  Sizes strides;
  Sizes pads_low;
  Sizes pads_high;
  Sizes dilations;
};

/// The attributes every windowed op has: strides, pads_low, pads_high, dilations.
std::vector<AttrSpec> window_attrs();
/// The window of a node that infer() accepted, with the given kernel sizes.
Window window_of(const Node& node, Sizes kernel);

/// Fails with `count` unless each window attribute has `spatial` entries, with `range` unless
/// strides and dilations are at least 1 and pads at least 0.
void check_window(const InferContext& ctx, std::size_t spatial, std::string_view count,
                  std::string_view range);

/// Positions from the first tap to the last: dilation * (kernel - 1) + 1.
SymExpr window_extent(const InferContext& ctx, std::size_t d, const SymExpr& kernel);
/// How many windows fit along spatial dimension d of an input of size `in`:
/// floor((in + low + high - extent) / stride) + 1. Fails with `fits` when not even one does.
SymExpr window_count(const InferContext& ctx, std::size_t d, const SymExpr& in,
                     const SymExpr& kernel, std::string_view fits);

/// One tap of a window: row-major positions in the spatial input and in the kernel.
struct Tap {
  std::int64_t input;
  std::int64_t kernel;
};
/// The taps of the window at output position `at` that lie inside an input of spatial `sizes`, in
/// row-major order of the kernel.
std::vector<Tap> taps_inside(const Window& window, const Sizes& at, const Sizes& sizes);

/// All sizes but the first two.
inline Sizes spatial_of(const Sizes& sizes) { return {sizes.begin() + 2, sizes.end()}; }

/// Calls f(position, index) for each index of `sizes` in row-major order.
template <typename F>
void for_each_index(const Sizes& sizes, F&& f) {
  if (element_count(sizes) == 0) return;
  Sizes index(sizes.size(), 0);
  std::int64_t position = 0;
  do f(position++, index);
  while (next_index(index, sizes));
}

}  // namespace heddle::ir::ops
