// Convolutions of each channel by itself, and of few channels to many, on the CPU, with the channels side by side.
//
//   for p in N x all dimensions of the result but the last spatial one (parallel)
//     for block of positions along that (serial)
//       for c in channels (vector)
//         for taps along the other dimensions (serial): carry the sums of the block
//           for each position of x that the block's windows read along the row: for each window that reads it:
//             sum += w[taps, c] * x[position, floor(c / multiplier)]
//         result(positions of the block, c)
//
// Of few channels, as images have, each vector of the result reads all of x: its channels are one more tap, and the lanes share what
// is read, wherever it lies. Of many taps along a row two vectors do, where there are registers for both.
//
// The multiplier is how many channels of the result each one of x has: a power of two, so that a vector of lanes reads whole
// channels. So are those of a group of a few channels of x, each of which is one more tap then.
//
// Of many taps along the row, only some have their weights in registers: a loop over parts of the taps carries the sums.
//
// Positions of many channels lie far apart, by a multiple of a high power of two where there are 128, 256 or 512: those that a block of
// windows reads share a few sets of the first-level cache then, and are gone before the next row of windows reads them again. Where
// that is so (is_in_slabs), parts of the result of some rows, one block of positions and 32 channels are made at a time:
//
//   for t in N x tiles of rows x blocks x parts of the channels (parallel)
//     slab = what they read of x, side by side, zeros beside the rows
//     for row of the tile (serial): the block as above, of slab
//
// With AVX2 (Zen 3) that took 0.40 to 0.80 of the time by 5 x 5 with 128, 256 and 512 channels, 0.47 to 0.60 by 3 x 3 with 512; where the
// cache holds what is read it took 1 to 1.4 times as long.
//
// What is read of x is used by all windows of the block, and weights by all of its positions: the sums stay in registers. The
// weights lie with the channels behind all other dimensions.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// Bytes of vectors, at most, with which nests of our own are worth more than the library's: many taps, groups, few channels.
inline constexpr std::int64_t kNarrowBytes = 32;
inline constexpr std::int64_t kWideBytes = 64;

/// Whether a convolution can be one of these, once its weights lie so. With vectors of 64 bytes the library's are as fast where
/// there are many taps or groups of several channels.
bool may_be_row_conv(const ir::Node& conv, std::int64_t vector_bytes);
/// Whether so many taps lie along the row that those in the padding must not be, for which x has to have its padding.
bool has_many_row_taps(const ir::Node& conv);
/// Whether it is one of few channels to many.
bool mixes_channels(const ir::Node& conv);
/// Whether its weights lie so: [m, c, k…] as a view of [c, k…, m]; a copy of them where only narrow vectors want it.
bool is_row_conv(const ir::Node& conv);

/// The bytes that `x` stands for, alone and by what DequantizeLinear is.
std::optional<ir::Value> bytes_behind(ir::Value x);
/// The bytes that x of such a convolution, each channel by itself, stands for, alone and by few operations: they are read in its place, a
/// quarter of the memory. None: x is anything else, and lies in memory.
std::optional<ir::Value> bytes_behind_x(const ir::Node& conv);

void build_row_conv(NestContext& ctx);

}  // namespace heddle::jit
