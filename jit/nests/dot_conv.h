// Convolutions to few channels, on the CPU: lanes are neighbouring terms of a sum.
//
//   for p in N x all dimensions of the result but the last spatial one x tiles of that (parallel)
//     acc[positions, m] = sum over the other dimensions' taps, the row's taps and channels (lanes)
//                         of x[position, tap, c] * w[m, tap, c]
//     for position of the tile: for m (vector): result(position, m)
//
// What a window reads of a row of x lies side by side, with all channels; the weights lie so too, with the channels behind all other
// dimensions. Vectors of channels of the result, as other nests and the library have, would be mostly empty.
//
// Windows that reach out of a row are computed one by one, from those of their taps that do not; of many taps along a row that is
// no small part, and x has to have its padding.
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// Whether products of `terms` terms by so many columns take less time so: those of a matrix, or of windows of one element.
bool pays_as_dot_conv(std::int64_t columns, std::int64_t terms, std::int64_t vector_bytes);
/// Whether a convolution can be one of these, once its weights lie so, and takes less time then.
bool may_be_dot_conv(const ir::Node& conv, std::int64_t vector_bytes);
/// Whether its weights lie so: [m, c, k…] as a view of a copy [m, k…, c].
bool is_dot_conv(const ir::Node& conv);

/// Whether the convolution is one, and its operands lie so in memory: one over views of others is computed as any other is.
bool reads_terms_side_by_side(NestContext& ctx);
void build_dot_conv(NestContext& ctx);

}  // namespace heddle::jit
