// A convolution as oneDNN counts, and the parts it may be computed in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "jit/library.h"

namespace heddle::jit::onednn {

using Ints = std::vector<std::int64_t>;

std::int64_t elements_of(const Ints& sizes);
/// Bytes of a part of scratch: parts begin at multiples of 64.
inline std::int64_t aligned(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

/// Sizes [N, C, spatial...], one entry a spatial dimension, dilations from 0.
struct Problem {
  Ints x, weights, result;
  bool has_bias = false;
  Ints strides, dilations, pads_low, pads_high;
  bool channels_last = false;
};
Problem problem_of(const LibraryCall& call, std::span<const LibraryOperand> operands);

/// How a convolution is computed.
enum class Algorithm : std::uint8_t {
  Direct,
  Winograd,       ///< Winograd's, in tiles of 4 x 4
  SmallWinograd,  ///< in tiles of 2 x 2: more products, and half the weights
};

/// Rows and columns of a tile of Winograd's F(4x4, 3x3), and of F(2x2, 3x3).
inline constexpr std::int64_t kWinogradTile = 4;
inline constexpr std::int64_t kSmallTile = 2;

constexpr bool is_winograd(Algorithm algorithm) { return algorithm != Algorithm::Direct; }
/// Rows and columns that a part of the result is a multiple of.
constexpr std::int64_t tile_of(Algorithm algorithm) {
  return algorithm == Algorithm::Winograd        ? kWinogradTile
         : algorithm == Algorithm::SmallWinograd ? kSmallTile
                                                 : 1;
}

/// Whether Winograd's algorithm computes `problem`: a 3 x 3 kernel with channels last that moves by one element.
bool fits_winograd(const Problem& problem);

/// The fastest, by a model of their costs: Winograd's algorithm does 36 products for each 16 x 9 of the direct one, or 16 for each 4 x 9,
/// and pays for its transforms and for weights that are 36 or 16 for each 9.
///
/// Direct where the others do not fit, and no small tiles but by a kernel of ours (has_winograd()); the weights must be fixed.
///
/// @param bytes  of all parameters that are read between two runs: the weights of large models come from memory.
Algorithm algorithm_for(const Problem& problem, std::int64_t bytes);

/// Parts of a convolution: each gives some slices of the result along one dimension, from the slices of x that
/// they read, as a convolution of its own. Along dimension 1, the channels, each gives some panels of run_winograd()'s from all of x.
struct Cut {
  std::size_t axis = 0;
  std::int64_t parts = 1;
  std::int64_t unit = 1;  ///< bounds of parts are multiples of it
  std::int64_t begin(std::int64_t part, std::int64_t size) const;
};

/// Where slices are whole runs of memory: along the outermost dimension that is not 1. Channels-last problems only.
/// Of Winograd's algorithm by channels where reading all the weights for each part takes longer than to transform all of x for it.
/// `resident`: parts that stay in a core's cache, besides one a thread; as is so where an image is large.
/// `by_channels`: that may be; each part then writes to every row of the result.
Cut cut_of(const Problem& problem, Algorithm algorithm, int threads, bool resident,
           bool by_channels = true);

struct PartOf {
  Problem problem;
  std::int64_t x_offset = 0;  ///< elements
  std::int64_t result_offset = 0;
};
/// Part `part`; nothing where it would read padding only.
std::optional<PartOf> part_of(const Problem& whole, const Cut& cut, std::int64_t part);

/// Elements of one channel of the result, over the batch.
std::int64_t positions_of(const Problem& problem);

}  // namespace heddle::jit::onednn
