// Which positions of a convolution's result run_windows() computes at a time, and where each of them reads x.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "jit/cpu/onednn/panels.h"
#include "jit/cpu/onednn/problem.h"

namespace heddle::jit::onednn::windows {

/// Positions of a block, at most.
inline constexpr std::int64_t kSlots = 96;
/// Of them are looked up at a time: a multiple of any vector's lanes.
inline constexpr std::int64_t kLookedUp = 8;
static_assert(kSlots % kLookedUp == 0);
/// Columns of a panel, at most.
inline constexpr std::int64_t kMostColumns = Avx512::kLanes * Avx512::kVectors;
/// Positions at the edges of rows are tiles of their own where so many channels make up for smaller tiles.
inline constexpr std::int64_t kLeastEdgeChannels = 32;
/// Rows at the edges of images, too, where they are as long.
inline constexpr std::int64_t kLeastEdgeColumns = 4;
/// Fewer positions at the ends of rows than make a tile have their windows copied, with zeros around them: then they are like the others.
inline constexpr std::int64_t kMostCopies = 7;

inline constexpr std::size_t kDepth = 0, kHeight = 1, kWidth = 2;
using Volume = std::array<std::int64_t, 3>;

/// `values`, one a spatial dimension, behind as many of `fill` as make three.
inline Volume volume_of(std::span<const std::int64_t> values, std::int64_t fill) {
  Volume volume{fill, fill, fill};
  std::ranges::copy(values, volume.end() - static_cast<std::ptrdiff_t>(values.size()));
  return volume;
}

struct Shape {
  std::int64_t batch, groups;
  std::int64_t channels, results;  ///< of a group
  std::int64_t all_channels, all_results;
  Volume x, result, taps, strides, dilations, pads;
  PanelWidths widths;                 ///< of a group
  std::int64_t inner = 0, outer = 0;  ///< see find_inner()

  Shape(const Problem& p, KernelIsa isa)
      : batch(p.x[0]),
        groups(p.weights.size() == p.result.size() ? 1 : p.weights[0]),
        channels(p.x[1] / groups),
        results(p.result[1] / groups),
        all_channels(p.x[1]),
        all_results(p.result[1]),
        x(volume_of(std::span(p.x).subspan(2), 1)),
        result(volume_of(std::span(p.result).subspan(2), 1)),
        taps(volume_of(std::span(p.weights).last(p.strides.size()), 1)),
        strides(volume_of(p.strides, 1)),
        dilations(volume_of(p.dilations, 0)),
        pads(volume_of(p.pads_low, 0)),
        widths(results, isa) {
    for (std::int64_t& dilation : dilations) ++dilation;
    find_inner();
  }

  /// Whether the taps of a row of a window inside of x lie side by side.
  bool joins() const { return taps[kWidth] == 1 || (dilations[kWidth] == 1 && groups == 1); }
  /// Whether windows may be copied.
  bool copies() const { return joins() && groups == 1; }
  std::int64_t all_taps() const { return taps[0] * taps[1] * taps[2]; }
  /// Zeros that are read for what lies outside: at a row of a window.
  std::int64_t zeros() const { return std::max(taps[kWidth] * channels, all_channels); }
  /// Of all groups.
  std::int64_t all_panels() const { return groups * widths.panels; }
  /// The first channel of the result of one of them, or of those behind the last.
  std::int64_t first_result(std::int64_t panel) const {
    if (panel == all_panels()) return all_results;
    return panel / widths.panels * results + widths.first_column(panel % widths.panels);
  }
  std::int64_t positions() const { return batch * result[0] * result[1] * result[2]; }
  /// Where the window of position `at` of the result begins, along a dimension.
  std::int64_t begin(std::size_t dimension, std::int64_t at) const {
    return at * strides[dimension] - pads[dimension];
  }
  std::int64_t reach(std::size_t dimension) const {
    return (taps[dimension] - 1) * dilations[dimension];
  }

 private:
  /// Positions [inner, outer) of a row of the result are those whose windows lie inside of a row of x.
  void find_inner() {
    outer = result[kWidth];
    while (inner < outer && begin(kWidth, inner) < 0) ++inner;
    while (outer > inner && begin(kWidth, outer - 1) + reach(kWidth) >= x[kWidth]) --outer;
  }
};

/// Positions [from, from + count) of the result, in the order in which tiles take them.
struct Block {
  using Slots = std::array<std::int64_t, kSlots>;
  std::int64_t from = 0, count = 0;
  std::int64_t filled = 0;       ///< slots so far
  Slots place{};                 ///< which of the positions
  std::array<Slots, 3> begin{};  ///< where its window begins in x, maybe outside
  Slots address{};               ///< of what lies there
  std::int64_t ends_count = 0;
  std::array<std::int64_t, kSlots + 1> ends{};  ///< of runs of slots that tiles stay within
  /// Runs, and slots of theirs, whose windows lie inside of rows of x, so that the taps of a row of a window are one.
  std::int64_t joined_runs = 0, joined_slots = 0;
  std::int64_t first_copied = 0;  ///< of those slots: from here on windows are copied

  void end_run() {
    const std::int64_t before =
        ends_count == 0 ? 0 : ends[static_cast<std::size_t>(ends_count) - 1];
    if (filled != before) ends[static_cast<std::size_t>(ends_count++)] = filled;
  }
};

/// Where all of a run reads and writes.
struct Scratch {
  float* zeros;
  float* sums;
  Block* block;
  std::int64_t* table;  ///< [taps, kSlots]: the address from which each slot reads x
  float* copies;        ///< of windows
  std::int64_t
      joined_step;  ///< from where a joined run reads a row of a window to where it reads the next

  Scratch(const Shape& s, void* memory) : joined_step(s.taps[kWidth] * kSlots) {
    char* at = static_cast<char*>(memory);
    zeros = reinterpret_cast<float*>(at);
    sums = reinterpret_cast<float*>(at += zeros_bytes(s));
    block = reinterpret_cast<Block*>(at += kSumBytes);
    table = reinterpret_cast<std::int64_t*>(at += kBlockBytes);
    copies = reinterpret_cast<float*>(at + table_bytes(s));
  }

  static std::int64_t bytes(const Shape& s) {
    const std::int64_t copies = s.copies() ? kMostCopies : 0;
    const auto copied = static_cast<std::size_t>(copies * s.all_taps() * s.channels);
    return zeros_bytes(s) + kSumBytes + kBlockBytes + table_bytes(s) +
           aligned(copied * sizeof(float));
  }

 private:
  static constexpr std::int64_t kSumBytes = kSlots * kMostColumns * sizeof(float);
  static constexpr std::int64_t kBlockBytes = (sizeof(Block) + 63) / 64 * 64;

  static std::int64_t table_bytes(const Shape& s) {
    return aligned(static_cast<std::size_t>(s.all_taps() * kSlots) * sizeof(std::int64_t));
  }
  static std::int64_t zeros_bytes(const Shape& s) {
    return aligned(static_cast<std::size_t>(s.zeros()) * sizeof(float));
  }
};

/// Fills `block`, whose positions are given, with these in the order in which tiles take them. Positions at the ends of rows come last. Where it
/// pays, each column of them is a run by itself, and so are rows at the upper and lower edges: taps outside are then those of whole tiles.
void order(const Shape& s, const float* x, Block& block);

/// Where slots [slot, last) of `block` read x at tap `tap`; `zeros` where that is outside. Whole vectors of slots: some more may be looked up.
HEDDLE_INLINE void look_up(const Shape& s, const Block& block, const Volume& tap, std::int64_t slot,
                           std::int64_t last, const float* zeros, std::int64_t* table) {
  const auto outside = reinterpret_cast<std::int64_t>(zeros);
  const Volume x = s.x;
  const std::int64_t* const depth = block.begin[kDepth].data();
  const std::int64_t* const height = block.begin[kHeight].data();
  const std::int64_t* const width = block.begin[kWidth].data();
  const std::int64_t* const address = block.address.data();
  const std::int64_t deeper = tap[kDepth] * s.dilations[kDepth];
  const std::int64_t lower = tap[kHeight] * s.dilations[kHeight];
  const std::int64_t further = tap[kWidth] * s.dilations[kWidth];
  const std::int64_t step = ((deeper * x[kHeight] + lower) * x[kWidth] + further) * s.all_channels *
                            static_cast<std::int64_t>(sizeof(float));
  for (std::int64_t k = slot; k < last; k += kLookedUp)
#pragma GCC ivdep
    for (std::int64_t at = k; at < k + kLookedUp; ++at) {
      const std::int64_t d = depth[at] + deeper;
      const std::int64_t h = height[at] + lower;
      const std::int64_t w = width[at] + further;
      const bool inside =
          (d >= 0) & (d < x[kDepth]) & (h >= 0) & (h < x[kHeight]) & (w >= 0) & (w < x[kWidth]);
      table[at] = inside ? address[at] + step : outside;
    }
}

/// The same at each tap; of joined runs at the first one of each row.
HEDDLE_INLINE void look_up(const Shape& s, const Block& block, const float* zeros,
                           std::int64_t* table) {
  Volume tap{};
  for (tap[kDepth] = 0; tap[kDepth] < s.taps[kDepth]; ++tap[kDepth])
    for (tap[kHeight] = 0; tap[kHeight] < s.taps[kHeight]; ++tap[kHeight])
      for (tap[kWidth] = 0; tap[kWidth] < s.taps[kWidth]; ++tap[kWidth]) {
        const std::int64_t first =
            tap[kWidth] == 0 ? 0 : block.joined_slots / kLookedUp * kLookedUp;
        look_up(s, block, tap, first, block.count, zeros, table);
        table += kSlots;
      }
}

/// Copies windows of `block` that reach over the ends of rows of x to where `copies` is, and has its slots read them there.
void copy_windows(const Shape& s, const Block& block, const Scratch& scratch);

}  // namespace heddle::jit::onednn::windows
