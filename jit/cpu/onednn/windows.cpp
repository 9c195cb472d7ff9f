#include "jit/cpu/onednn/windows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace heddle::jit::onednn {

namespace {

/// Positions of a block, at most.
constexpr std::int64_t kSlots = 96;
/// Of them are looked up at a time: a multiple of any vector's lanes.
constexpr std::int64_t kLookedUp = 8;
static_assert(kSlots % kLookedUp == 0);
/// Channels of a part of a panel times its vectors: 32 KiB with AVX-512, 16 KiB with AVX2, which stay in the first-level cache while all tiles of a
/// block pass over them.
constexpr std::int64_t kPartRows = 512;
/// Columns of a panel, at most.
constexpr std::int64_t kMostColumns = Avx512::kLanes * Avx512::kVectors;
/// Positions at the edges of rows are tiles of their own where so many channels make up for smaller tiles.
constexpr std::int64_t kLeastEdgeChannels = 32;
/// Rows at the edges of images, too, where they are as long.
constexpr std::int64_t kLeastEdgeColumns = 4;
/// Fewer positions at the ends of rows than make a tile have their windows copied, with zeros around them: then they are like the others.
constexpr std::int64_t kMostCopies = 7;

/// Positions of a tile, by the vectors of a panel: their sums stay in registers, and where they read x, one address each, too.
template <typename Isa>
constexpr std::array<int, Isa::kVectors> kRowsOf{};
template <>
constexpr std::array<int, Avx512::kVectors> kRowsOf<Avx512>{8, 8, 8, 6};
template <>
constexpr std::array<int, Avx2::kVectors> kRowsOf<Avx2>{8, 6};
template <>
constexpr std::array<int, AnyIsa::kVectors> kRowsOf<AnyIsa>{8, 6};

constexpr std::size_t kDepth = 0, kHeight = 1, kWidth = 2;
using Volume = std::array<std::int64_t, 3>;

/// `values`, one a spatial dimension, behind as many of `fill` as make three.
Volume volume_of(std::span<const std::int64_t> values, std::int64_t fill) {
  Volume volume{fill, fill, fill};
  std::ranges::copy(values, volume.end() - static_cast<std::ptrdiff_t>(values.size()));
  return volume;
}

struct Shape {
  std::int64_t batch, groups;
  std::int64_t channels, results;  ///< of a group
  std::int64_t all_channels, all_results;
  Volume x, result, taps, strides, dilations, pads;
  std::int64_t lanes, vectors, panels;  ///< of a vector, of the result's channels, of those
  std::int64_t inner = 0, outer = 0;    ///< see find_inner()

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
        lanes(isa == KernelIsa::Avx512 ? Avx512::kLanes
              : isa == KernelIsa::Avx2 ? Avx2::kLanes
                                       : AnyIsa::kLanes),
        vectors((results + lanes - 1) / lanes) {
    static_assert(Avx2::kVectors == AnyIsa::kVectors);
    const std::int64_t most = isa == KernelIsa::Avx512 ? Avx512::kVectors : Avx2::kVectors;
    panels = (vectors + most - 1) / most;
    for (std::int64_t& dilation : dilations) ++dilation;
    find_inner();
  }

  /// Whether the taps of a row of a window inside of x lie side by side.
  bool joins() const { return taps[kWidth] == 1 || (dilations[kWidth] == 1 && groups == 1); }
  std::int64_t all_taps() const { return taps[0] * taps[1] * taps[2]; }
  /// Zeros that are read for what lies outside: at a row of a window.
  std::int64_t zeros() const { return std::max(taps[kWidth] * channels, all_channels); }
  std::int64_t positions() const { return batch * result[0] * result[1] * result[2]; }
  /// The first vector of panel `panel`, or of those behind the last.
  std::int64_t first_vector(std::int64_t panel) const { return vectors * panel / panels; }
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
    const auto copied = static_cast<std::size_t>(kMostCopies * s.all_taps() * s.channels);
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

/// Rows of the result that a block has a part of, one after another.
class Rows {
 public:
  Rows(const Shape& s, const Block& block) : s_(s), left_(block.count) {
    const std::int64_t columns = s.result[kWidth];
    begin_ = block.from % columns;
    std::int64_t row = block.from / columns;
    for (const std::size_t d : {kHeight, kDepth}) {
      at_[d] = row % s.result[d];
      row /= s.result[d];
    }
    image_ = row;
  }

  bool is_done() const { return left_ == 0; }
  std::int64_t place() const { return place_; }  ///< of its first position in the block
  std::int64_t begin() const { return begin_; }  ///< its first column
  std::int64_t end() const { return std::min(s_.result[kWidth], begin_ + left_); }

  /// Whether windows reach over the upper or lower edge of x.
  bool is_at_edge() const {
    const std::int64_t first = s_.begin(kHeight, at_[kHeight]);
    return first < 0 || first + s_.reach(kHeight) >= s_.x[kHeight];
  }

  void next() {
    place_ += end() - begin_;
    left_ -= end() - begin_;
    begin_ = 0;
    if (++at_[kHeight] < s_.result[kHeight]) return;
    at_[kHeight] = 0;
    if (++at_[kDepth] < s_.result[kDepth]) return;
    at_[kDepth] = 0;
    ++image_;
  }

  /// Puts columns [from, to) of the row into slots.
  void put(const float* x, std::int64_t from, std::int64_t to, Block& block) const {
    const std::int64_t depth = s_.begin(kDepth, at_[kDepth]);
    const std::int64_t height = s_.begin(kHeight, at_[kHeight]);
    std::int64_t width = s_.begin(kWidth, from);
    const std::int64_t row = (image_ * s_.x[kDepth] + depth) * s_.x[kHeight] + height;
    const std::int64_t element = sizeof(float) * s_.all_channels;
    // Addresses outside of x are computed, not read: integers, which may be any.
    std::int64_t address =
        reinterpret_cast<std::int64_t>(x) + (row * s_.x[kWidth] + width) * element;
    for (std::int64_t column = from; column < to; ++column) {
      const auto slot = static_cast<std::size_t>(block.filled++);
      block.place[slot] = place_ + column - begin_;
      block.begin[kDepth][slot] = depth;
      block.begin[kHeight][slot] = height;
      block.begin[kWidth][slot] = width;
      block.address[slot] = address;
      width += s_.strides[kWidth];
      address += s_.strides[kWidth] * element;
    }
  }

 private:
  const Shape& s_;
  Volume at_{};
  std::int64_t image_ = 0, begin_ = 0, left_, place_ = 0;
};

/// Positions at the ends of rows come last. Where it pays, each column of them is a run by itself, and so are rows at the upper and lower edges:
/// taps outside are then those of whole tiles.
void order(const Shape& s, const float* x, Block& block) {
  block.filled = 0;
  block.ends_count = 0;
  const std::int64_t columns = s.result[kWidth];
  const bool splits =
      s.channels >= kLeastEdgeChannels && s.vectors > 2 && block.count >= 2 * columns;
  for (Rows rows(s, block); !rows.is_done(); rows.next()) {
    const std::int64_t begin = std::max(rows.begin(), s.inner);
    const std::int64_t end = std::max(begin, std::min(rows.end(), s.outer));
    const bool alone = splits && end - begin >= kLeastEdgeColumns && rows.is_at_edge();
    if (alone) block.end_run();
    rows.put(x, begin, end, block);
    if (alone) block.end_run();
  }
  block.first_copied = block.filled;
  const bool copies =
      s.joins() && s.groups == 1 && !splits && block.count - block.filled <= kMostCopies;
  if (!copies) block.end_run();
  block.joined_runs = s.joins() ? block.ends_count : 0;
  block.joined_slots = s.joins() ? block.filled : 0;
  const auto put_edges = [&](std::int64_t first, std::int64_t last) {
    for (Rows rows(s, block); !rows.is_done(); rows.next()) {
      const std::int64_t begin = std::max(rows.begin(), first);
      rows.put(x, begin, std::max(begin, std::min(rows.end(), last)), block);
    }
  };
  const std::int64_t each = splits ? 1 : columns;
  for (std::int64_t column = 0; column < s.inner; column += each) {
    put_edges(column, std::min(column + each, s.inner));
    if (!copies) block.end_run();
  }
  for (std::int64_t column = s.outer; column < columns; column += each) {
    put_edges(column, std::min(column + each, columns));
    if (!copies) block.end_run();
  }
  if (!copies) return;
  block.end_run();
  block.joined_runs = block.ends_count;
  block.joined_slots = block.filled;
}

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
void copy_windows(const Shape& s, const Block& block, const Scratch& scratch) {
  float* to = scratch.copies;
  const std::int64_t across = s.taps[kWidth];
  for (std::int64_t slot = block.first_copied; slot < block.joined_slots; ++slot) {
    const auto at = static_cast<std::size_t>(slot);
    std::int64_t* entry = scratch.table + slot;
    const std::int64_t width = block.begin[kWidth][at];
    const std::int64_t first = std::clamp<std::int64_t>(-width, 0, across);
    const std::int64_t last = std::clamp<std::int64_t>(s.x[kWidth] - width, first, across);
    for (std::int64_t row = 0; row < s.taps[kDepth] * s.taps[kHeight]; ++row) {
      const std::int64_t depth = row / s.taps[kHeight] * s.dilations[kDepth];
      const std::int64_t height = row % s.taps[kHeight] * s.dilations[kHeight];
      const std::int64_t d = block.begin[kDepth][at] + depth;
      const std::int64_t h = block.begin[kHeight][at] + height;
      const bool inside = d >= 0 && d < s.x[kDepth] && h >= 0 && h < s.x[kHeight];
      *entry = reinterpret_cast<std::int64_t>(inside ? to : scratch.zeros);
      entry += scratch.joined_step;
      if (!inside) continue;
      const std::int64_t step =
          ((depth * s.x[kHeight] + height) * s.x[kWidth] + first) * s.channels;
      const auto* from = reinterpret_cast<const float*>(
          block.address[at] + step * static_cast<std::int64_t>(sizeof(float)));
      to = std::fill_n(to, first * s.channels, 0.0f);
      to = std::copy_n(from, (last - first) * s.channels, to);
      to = std::fill_n(to, (across - last) * s.channels, 0.0f);
    }
  }
}

/// Rows [first, last) of taps, and of each elements [begin, end): channels of taps that lie side by side. Rows are those of a kernel, or a
/// tap each.
struct Rectangle {
  std::int64_t first, last, begin, end;
};

/// A part of a panel.
struct Part {
  Rectangle joined, single;  ///< by rows of the kernel, and by taps
  bool starts, ends;         ///< it is the first, the last one
};

/// The columns of a panel in the result, and the channels that they are of.
struct Columns {
  std::int64_t group_begin;  ///< the first of the group's channels in x
  float* out;                ///< of the block's first position
  const float *bias, *added;
  std::int64_t step;  ///< from a position to the next
  bool whole;         ///< all columns of the panel are there
};

/// Adds a part of a panel, `weights`, for slots [slot, slot + Rows) to their sums; the last part brings them to their places.
template <typename Isa, int Rows, int Vectors>
HEDDLE_INLINE void multiply(const Scratch& scratch, const Part& part, bool joined,
                            const float* weights, const Columns& columns, std::int64_t slot) {
  using Vector = typename Isa::Vector;
  constexpr std::int64_t kLanes = Isa::kLanes;
  float* sums = scratch.sums + slot * Vectors * kLanes;
  Vector acc[Rows][Vectors] = {};
  if (!part.starts)
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) load(acc[r][v], sums + (r * Vectors + v) * kLanes);
  const Rectangle& taps = joined ? part.joined : part.single;
  const std::int64_t step = joined ? scratch.joined_step : kSlots;
  const std::int64_t* table = scratch.table + taps.first * step + slot;
  for (std::int64_t tap = taps.first; tap < taps.last; ++tap, table += step) {
    const float* x[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) x[r] = reinterpret_cast<const float*>(table[r]);
    bool outside = x[0] == scratch.zeros;
    if (outside)
#pragma GCC unroll 8
      for (int r = 1; r < Rows; ++r) outside = outside && x[r] == scratch.zeros;
    if (outside) {
      weights += (taps.end - taps.begin) * Vectors * kLanes;
      continue;
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) x[r] += columns.group_begin;
#pragma GCC unroll 4
    for (std::int64_t c = taps.begin; c < taps.end; ++c) {
      Vector b[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) load(b[v], weights + v * kLanes);
      weights += Vectors * kLanes;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const float wide = x[r][c];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) acc[r][v] += wide * b[v];
      }
    }
  }
  if (part.ends && columns.whole) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const std::int64_t at =
          scratch.block->place[static_cast<std::size_t>(slot + r)] * columns.step;
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        Vector other{};
        if (columns.bias != nullptr) load(other, columns.bias + v * kLanes);
        acc[r][v] += other;
        if (columns.added != nullptr) {
          load(other, columns.added + at + v * kLanes);
          acc[r][v] += other;
        }
        store(columns.out + at + v * kLanes, acc[r][v]);
      }
    }
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(sums + (r * Vectors + v) * kLanes, acc[r][v]);
}

template <typename Isa, int Rows, int Vectors>
HEDDLE_INLINE void multiply_some(std::int64_t rows, const Scratch& scratch, const Part& part,
                                 bool joined, const float* weights, const Columns& columns,
                                 std::int64_t slot) {
  if (rows == Rows)
    multiply<Isa, Rows, Vectors>(scratch, part, joined, weights, columns, slot);
  else if constexpr (Rows > 1)
    multiply_some<Isa, Rows - 1, Vectors>(rows, scratch, part, joined, weights, columns, slot);
}

/// All tiles of a block, of about as many positions each.
template <typename Isa, int Vectors>
HEDDLE_INLINE void multiply_part(const Scratch& scratch, const Part& part, const float* weights,
                                 const Columns& columns) {
  constexpr int kRows = kRowsOf<Isa>[Vectors - 1];
  const Block& block = *scratch.block;
  std::int64_t slot = 0;
  for (std::int64_t run = 0; run < block.ends_count; ++run) {
    const std::int64_t end = block.ends[static_cast<std::size_t>(run)];
    for (std::int64_t tiles = (end - slot + kRows - 1) / kRows; tiles > 0; --tiles) {
      const std::int64_t rows = (end - slot + tiles - 1) / tiles;
      multiply_some<Isa, kRows, Vectors>(rows, scratch, part, run < block.joined_runs, weights,
                                         columns, slot);
      slot += rows;
    }
  }
}

/// Calls `f` with the bounds of as few even pieces of `size` as hold `most` each.
template <typename F>
HEDDLE_INLINE void in_pieces(std::int64_t size, std::int64_t most, const F& f) {
  const std::int64_t pieces = (size + most - 1) / most;
  for (std::int64_t k = 0; k < pieces; ++k) f(size * k / pieces, size * (k + 1) / pieces);
}

/// A block times a panel: some rows of a kernel at a time, some taps of a row, or some channels of a tap.
template <typename Isa, int Vectors>
HEDDLE_INLINE void multiply_panel(const Shape& s, const Scratch& scratch, const float* panel,
                                  const Columns& columns) {
  constexpr std::int64_t kMost = kPartRows / Vectors;
  const std::int64_t rows = s.taps[kDepth] * s.taps[kHeight];
  const std::int64_t across = s.taps[kWidth];
  const std::int64_t channels = s.channels;
  const std::int64_t most_taps = std::max<std::int64_t>(1, kMost / channels);
  const std::int64_t most_rows = std::max<std::int64_t>(1, most_taps / across);
  in_pieces(
      rows, most_rows, [&](std::int64_t row, std::int64_t last_row) __attribute__((always_inline)) {
        in_pieces(
            across, most_taps,
            [&](std::int64_t tap, std::int64_t last_tap) __attribute__((always_inline)) {
              in_pieces(
                  channels, kMost,
                  [&](std::int64_t c, std::int64_t last_c) __attribute__((always_inline)) {
                    const std::int64_t skipped = tap * channels + c;
                    const Part part{
                        .joined = {row, last_row, skipped, (last_tap - 1) * channels + last_c},
                        .single = {row * across + tap, (last_row - 1) * across + last_tap, c,
                                   last_c},
                        .starts = row == 0 && skipped == 0,
                        .ends = last_row == rows && last_tap == across && last_c == channels};
                    multiply_part<Isa, Vectors>(
                        scratch, part,
                        panel + (row * across * channels + skipped) * Vectors * Isa::kLanes,
                        columns);
                  });
            });
      });
}

/// A `Vector` of sums and what is added to them, column `c` of the position at `at`, to its place.
template <typename Vector>
HEDDLE_INLINE void put(const float* sums, const Columns& columns, std::int64_t at, std::int64_t c) {
  Vector value;
  load(value, sums + c);
  Vector other{};
  if (columns.bias != nullptr) {
    load(other, columns.bias + c);
    value += other;
  }
  if (columns.added != nullptr) {
    load(other, columns.added + at + c);
    value += other;
  }
  store(columns.out + at + c, value);
}

/// The sums of `count` columns, not all of a panel's, to their places.
template <typename Isa>
HEDDLE_INLINE void put_some(const Scratch& scratch, std::int64_t panel, std::int64_t count,
                            const Columns& columns) {
  using One = float __attribute__((vector_size(4), aligned(4), may_alias));
  for (std::int64_t slot = 0; slot < scratch.block->count; ++slot) {
    const std::int64_t at = scratch.block->place[static_cast<std::size_t>(slot)] * columns.step;
    const float* sums = scratch.sums + slot * panel;
    std::int64_t c = 0;
    for (; c + Isa::kLanes <= count; c += Isa::kLanes)
      put<typename Isa::Vector>(sums, columns, at, c);
    for (; c + Isa::kLanes / 2 <= count; c += Isa::kLanes / 2)
      put<typename Isa::HalfVector>(sums, columns, at, c);
    for (; c < count; ++c) put<One>(sums, columns, at, c);
  }
}

struct Call {
  Shape s;
  const float *x, *weights, *bias, *added;
  float* out;
};

template <typename Isa>
HEDDLE_INLINE void run_block(const Call& call, const Scratch& scratch) {
  const Shape& s = call.s;
  Block& block = *scratch.block;
  look_up(s, block, scratch.zeros, scratch.table);
  copy_windows(s, block, scratch);
  for (std::int64_t k = 0; k < s.groups * s.panels; ++k) {
    const std::int64_t group = k / s.panels;
    const std::int64_t n = k % s.panels;
    const std::int64_t vectors = s.first_vector(n + 1) - s.first_vector(n);
    const std::int64_t first = s.first_vector(n) * Isa::kLanes;
    const std::int64_t count = std::min(vectors * Isa::kLanes, s.results - first);
    const std::int64_t column = group * s.results + first;
    const std::int64_t at = block.from * s.all_results + column;
    const Columns columns{.group_begin = group * s.channels,
                          .out = call.out + at,
                          .bias = call.bias == nullptr ? nullptr : call.bias + column,
                          .added = call.added == nullptr ? nullptr : call.added + at,
                          .step = s.all_results,
                          .whole = count == vectors * Isa::kLanes};
    const float* panel = call.weights + (group * s.vectors + s.first_vector(n)) * Isa::kLanes *
                                            s.all_taps() * s.channels;
    const auto by_vectors = [&]<int Vectors>(std::integral_constant<int, Vectors>)
                                __attribute__((always_inline)) {
                                  if (vectors == Vectors)
                                    multiply_panel<Isa, Vectors>(s, scratch, panel, columns);
                                };
    by_vectors(std::integral_constant<int, 1>());
    by_vectors(std::integral_constant<int, 2>());
    if constexpr (Isa::kVectors > 2) {
      by_vectors(std::integral_constant<int, 3>());
      by_vectors(std::integral_constant<int, 4>());
    }
    if (!columns.whole) put_some<Isa>(scratch, vectors * Isa::kLanes, count, columns);
  }
}

HEDDLE_AVX512 void run_on_avx512(const Call& call, const Scratch& scratch) {
  run_block<Avx512>(call, scratch);
}
HEDDLE_AVX2 void run_on_avx2(const Call& call, const Scratch& scratch) {
  run_block<Avx2>(call, scratch);
}
void run_on_any(const Call& call, const Scratch& scratch) { run_block<AnyIsa>(call, scratch); }

/// What follows, on `count` positions of `out` from `from` on.
void follow(const Shape& s, std::span<const TailOp> tail, std::int64_t from, std::int64_t count,
            float* out) {
  if (tail.empty()) return;
  std::array<TailOp, kMaxEpilogue> ops;
  std::ranges::copy(tail, ops.begin());
  for (std::size_t k = 0; k < tail.size(); ++k)
    if (ops[k].op.kind == EpilogueOp::Kind::Add) ops[k].operand += from * s.all_results;
  run_tail({ops.data(), tail.size()}, out + from * s.all_results, count, s.all_results);
}

}  // namespace

bool has_windows(const Problem& problem) {
  return problem.channels_last && problem.result.size() <= 5;
}

bool suits_windows(const Problem& problem) {
  constexpr std::int64_t kFewProducts = std::int64_t{1} << 22;
  constexpr std::int64_t kHalf = Avx512::kLanes / 2;
  const Shape s(problem, kernel_isas().front());
  if (s.groups > 1 && s.channels == 1 && s.results == 1) return false;
  const bool is_narrow = s.lanes == Avx512::kLanes && s.results <= s.lanes &&
                         (s.groups == 1 || s.results <= kHalf || s.results == s.lanes);
  return !is_narrow || elements_of(problem.weights) * positions_of(problem) <= kFewProducts;
}

Ints window_weights(const Problem& problem, KernelIsa isa) {
  const Shape s(problem, isa);
  return {s.all_taps(), s.channels, s.groups * s.vectors * s.lanes};
}

void pack_window_weights(const Problem& problem, const float* weights, float* packed,
                         KernelIsa isa) {
  // Lines of the weights are read once: those of a few channels are in the first-level cache for all taps.
  constexpr std::int64_t kChannels = 8;
  const Shape s(problem, isa);
  const std::int64_t taps = s.all_taps();
  for (std::int64_t k = 0; k < s.groups * s.panels; ++k) {
    const std::int64_t first = s.first_vector(k % s.panels) * s.lanes;
    const std::int64_t columns = s.first_vector(k % s.panels + 1) * s.lanes - first;
    const std::int64_t given = std::min(columns, s.results - first);
    const float* from = weights + (k / s.panels * s.results + first) * s.channels * taps;
    for (std::int64_t begin = 0; begin < s.channels; begin += kChannels)
      for (std::int64_t tap = 0; tap < taps; ++tap)
        for (std::int64_t c = begin; c < std::min(begin + kChannels, s.channels); ++c) {
          float* to = packed + (tap * s.channels + c) * columns;
          for (std::int64_t m = 0; m < given; ++m) to[m] = from[(m * s.channels + c) * taps + tap];
          std::fill(to + given, to + columns, 0.0f);
        }
    packed += columns * s.channels * taps;
  }
}

std::int64_t window_scratch(const Problem& problem, KernelIsa isa) {
  return Scratch::bytes(Shape(problem, isa));
}

void run_windows(const Problem& problem, const float* x, const float* packed, const float* bias,
                 const float* added, std::span<const TailOp> tail, float* out, void* scratch,
                 KernelIsa isa) {
  const Call call{Shape(problem, isa), x, packed, bias, added, out};
  const Scratch parts(call.s, scratch);
  std::fill_n(parts.zeros, call.s.zeros(), 0.0f);
  const std::int64_t positions = call.s.positions();
  const std::int64_t blocks = (positions + kSlots - 1) / kSlots;
  Block& block = *std::construct_at(parts.block);
  for (std::int64_t k = 0; k < blocks; ++k) {
    block.from = positions * k / blocks;
    block.count = positions * (k + 1) / blocks - block.from;
    order(call.s, x, block);
    const auto run = isa == KernelIsa::Avx512 ? run_on_avx512
                     : isa == KernelIsa::Avx2 ? run_on_avx2
                                              : run_on_any;
    run(call, parts);
    follow(call.s, tail, block.from, block.count, out);
  }
}

}  // namespace heddle::jit::onednn
