// What the windows of a convolution read, as rows of a matrix.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// [n, …, c] from [n, c, …], of three dimensions or more, and back.
std::vector<std::int64_t> channels_to_last(std::size_t rank);
std::vector<std::int64_t> channels_to_front(std::size_t rank);

bool has_padding(const ir::Node& conv);
/// x [n, in…, c] with the padding of `conv`, if it has any. @param zero  scalar of x's dtype
ir::Value with_padding(ir::GraphBuilder& builder, const ir::Node& conv, ir::Value x,
                       ir::Value zero);

/// x [n, in…, c] ==> [n, out…, taps * c]: what each window reads, tap behind tap. Its kernel's sizes are constant.
///
///   %p = pad(%x, %zero) {low = [0, 1, 1, 0], …}                  only where there is padding
///   %w = concat(slice(%p) {start = [0, 0, 0, 0], …}, slice(%p) {start = [0, 0, 1, 0], …}, …) {axis = -1}
///
/// One tap is x itself, copied where windows leave out some of it or it is in another order.
/// @param zero  scalar of x's dtype; read only where there is padding.
ir::Value windows_of(ir::GraphBuilder& builder, const ir::Node& conv, ir::Value x, ir::Value zero);

/// x [n, in…, c] ==> [n, out…, c]: the sum over the taps of each window. @param zero  as above
ir::Value window_sums(ir::GraphBuilder& builder, const ir::Node& conv, ir::Value x, ir::Value zero);

/// The dimension of x [n, in…, c] along which the windows of `conv` lie, each in one piece: of one channel any, of several the last
/// before the channels; nothing where they do not.
std::optional<std::size_t> axis_of_runs(const ir::Node& conv);

/// The same of a convolution of which axis_of_runs() tells the axis: a view of x, or of x with padding, in which windows overlap.
///
///   %w = unfold(reshape(%x) {sizes = [n, in * c]}) {axis = 1, size = taps * c, step = stride * c}
ir::Value windows_in_place(ir::GraphBuilder& builder, const ir::Node& conv, ir::Value x,
                           ir::Value zero);

/// Whether the library computes `conv`, which has the channels last, in tiles: by Winograd's algorithm, which does 0.25 to 0.4 of the products.
/// Fewer than 36 positions do not pay for their weights, 1.8 times as many or more.
bool is_tiled(const ir::Node& conv, const LowerOptions& options);

/// The same of a kernel of 3 or 5 elements along the last dimension, of 32 channels or more: tiles, which do half the products, are faster
/// for any sizes of x, and no code is made for each of them.
bool is_tiled_along_rows(const ir::Node& conv, const LowerOptions& options);

/// The attributes of packed_int8_conv or packed_bf16_conv of the windows of `conv`, whose kernel's sizes are constant.
ir::Attrs panel_conv_attrs(const ir::Node& conv);

/// Weights [m, c, k…] as [k… * c, m], what rows of windows_of() are multiplied by.
ir::Value filters_of(ir::GraphBuilder& builder, ir::Value weights);

}  // namespace heddle::jit
