// A convolution as oneDNN counts, and the parts it may be computed in.
#pragma once

#include <array>
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
  Direct,         ///< by the library
  Winograd,       ///< Winograd's
  SmallWinograd,  ///< in smaller tiles: more products, and half the weights
  Windows,        ///< the direct one by a kernel of ours, where that takes the problem (windows.h)
};

constexpr bool is_winograd(Algorithm algorithm) {
  return algorithm == Algorithm::Winograd || algorithm == Algorithm::SmallWinograd;
}

/// Winograd's F(down x across, taps): the part of the result that a tile is, and the kernel.
struct TileForm {
  std::int64_t down, across;
  std::int64_t taps_down, taps_across;

  /// Rows and columns of x that a tile reads, which become as many points.
  constexpr std::int64_t in_down() const { return down + taps_down - 1; }
  constexpr std::int64_t in_across() const { return across + taps_across - 1; }
  constexpr std::int64_t points() const { return in_down() * in_across(); }
  friend constexpr bool operator==(const TileForm&, const TileForm&) = default;
};
inline constexpr TileForm kTiles4{4, 4, 3, 3};
inline constexpr TileForm kTiles2{2, 2, 3, 3};
inline constexpr TileForm kRowTiles3{1, 4, 1, 3};
inline constexpr TileForm kRowTiles5{1, 2, 1, 5};
inline constexpr TileForm kColumnTiles3{4, 1, 3, 1};
inline constexpr TileForm kColumnTiles5{2, 1, 5, 1};
inline constexpr std::array kTileForms{kTiles4,    kTiles2,       kRowTiles3,
                                       kRowTiles5, kColumnTiles3, kColumnTiles5};

/// That of `algorithm` for a kernel of these sizes; nothing: there is none.
std::optional<TileForm> form_of(const Problem& problem, Algorithm algorithm);

/// Whether Winograd's algorithm computes `problem`: a kernel of 3 x 3, or by a kernel of ours of 3 or 5 elements along a row or down a
/// column, with channels last, that moves by one element.
bool fits_winograd(const Problem& problem);

/// The fastest, by a model of their costs: Winograd's algorithm does 36 products for each 16 x 9 of the direct one, or 16 for each 4 x 9 (6
/// for each 4 x 3, or 2 x 5, along a row or a column), and pays for its transforms and for weights that are 36 or 16 for each 9.
///
/// Direct where the others do not fit, and no small tiles but by a kernel of ours (has_winograd()); the weights must be fixed.
///
/// @param bytes  of all parameters that are read between two runs: the weights of large models come from memory.
Algorithm algorithm_for(const Problem& problem, std::int64_t bytes);

/// Elements of one channel of the result, over the batch.
std::int64_t positions_of(const Problem& problem);
/// Tiles of the result, over the batch.
std::int64_t tiles_of(const Problem& problem, const TileForm& form);

/// What the algorithms cost besides their products, in multiply-adds at the rate of the direct one.
struct ConvCosts {
  std::int64_t transform;      ///< an element put into or taken out of the tiles
  std::int64_t weight;         ///< a transformed weight from a cache
  std::int64_t far_weight;     ///< from memory, or of more than a third-level cache holds
  std::int64_t direct_weight;  ///< a weight of the direct algorithm
  std::int64_t direct_call;
};
/// Of the kernels of ours.
ConvCosts costs_of_ours();

}  // namespace heddle::jit::onednn
