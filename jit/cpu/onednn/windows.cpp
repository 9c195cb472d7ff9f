#include "jit/cpu/onednn/windows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "jit/cpu/onednn/window_block.h"

namespace heddle::jit::onednn {

namespace {

using namespace windows;

/// Channels of a part of a panel times its vectors: 32 KiB with AVX-512, 16 KiB with AVX2, which stay in the first-level cache while all tiles of a
/// block pass over them.
constexpr std::int64_t kPartRows = 512;

/// Positions of a tile, by the vectors of a panel: their sums stay in registers, and where they read x, one address each, too.
template <typename Isa>
constexpr std::array<int, Isa::kVectors> kRowsOf{};
template <>
constexpr std::array<int, Avx512::kVectors> kRowsOf<Avx512>{8, 8, 8};
template <>
constexpr std::array<int, Avx2::kVectors> kRowsOf<Avx2>{8, 6};
template <>
constexpr std::array<int, AnyIsa::kVectors> kRowsOf<AnyIsa>{8, 6};

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

/// Sums of columns from `c` on, and what is added to them, to their place in the position at `at`.
template <typename Vector>
HEDDLE_INLINE void put(Vector& sums, const Columns& columns, std::int64_t at, std::int64_t c) {
  Vector other{};
  if (columns.bias != nullptr) {
    load(other, columns.bias + c);
    sums += other;
  }
  if (columns.added != nullptr) {
    load(other, columns.added + at + c);
    sums += other;
  }
  store(columns.out + at + c, sums);
}

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
      for (int v = 0; v < Vectors; ++v) put(acc[r][v], columns, at, v * kLanes);
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

template <typename Vector>
HEDDLE_INLINE void put_at(const float* sums, const Columns& columns, std::int64_t at,
                          std::int64_t c) {
  Vector value;
  load(value, sums + c);
  put(value, columns, at, c);
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
      put_at<typename Isa::Vector>(sums, columns, at, c);
    for (; c + Isa::kLanes / 2 <= count; c += Isa::kLanes / 2)
      put_at<typename Isa::HalfVector>(sums, columns, at, c);
    for (; c < count; ++c) put_at<One>(sums, columns, at, c);
  }
}

struct Call {
  Shape s;
  Panels panels;  ///< that are computed
  const float *x, *weights, *bias, *added;
  float* out;
};

template <typename Isa>
HEDDLE_INLINE void run_block(const Call& call, const Scratch& scratch) {
  const Shape& s = call.s;
  Block& block = *scratch.block;
  look_up(s, block, scratch.zeros, scratch.table);
  copy_windows(s, block, scratch);
  for (std::int64_t k = call.panels.begin; k < call.panels.end; ++k) {
    const std::int64_t group = k / s.widths.panels;
    const std::int64_t n = k % s.widths.panels;
    const std::int64_t vectors = s.widths.vectors_of(n);
    const std::int64_t first = s.widths.first_column(n);
    const std::int64_t count = std::min(vectors * Isa::kLanes, s.results - first);
    const std::int64_t column = group * s.results + first;
    const std::int64_t at = block.from * s.all_results + column;
    const Columns columns{.group_begin = group * s.channels,
                          .out = call.out + at,
                          .bias = call.bias == nullptr ? nullptr : call.bias + column,
                          .added = call.added == nullptr ? nullptr : call.added + at,
                          .step = s.all_results,
                          .whole = count == vectors * Isa::kLanes};
    const float* panel =
        call.weights + (group * s.widths.vectors * Isa::kLanes + first) * s.all_taps() * s.channels;
    const auto by_vectors = [&]<int Vectors>(std::integral_constant<int, Vectors>)
                                __attribute__((always_inline)) {
                                  if (vectors == Vectors)
                                    multiply_panel<Isa, Vectors>(s, scratch, panel, columns);
                                };
    by_vectors(std::integral_constant<int, 1>());
    by_vectors(std::integral_constant<int, 2>());
    if constexpr (Isa::kVectors > 2) by_vectors(std::integral_constant<int, 3>());
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

/// What follows, on `count` positions of the result from `from` on.
void follow(const Call& call, std::span<const TailOp> tail, std::int64_t from, std::int64_t count) {
  if (tail.empty()) return;
  const Shape& s = call.s;
  const std::int64_t column = s.first_result(call.panels.begin);
  const std::int64_t first = from * s.all_results + column;
  std::array<TailOp, kMaxEpilogue> ops;
  std::ranges::copy(tail, ops.begin());
  for (std::size_t k = 0; k < tail.size(); ++k)
    if (ops[k].operand != nullptr)
      ops[k].operand += ops[k].op.kind == EpilogueOp::Kind::Add ? first : column;
  run_tail({ops.data(), tail.size()}, call.out + first, count,
           s.first_result(call.panels.end) - column, s.all_results);
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
  const std::int64_t lanes = s.widths.lanes;
  const bool is_narrow = lanes == Avx512::kLanes && s.results <= lanes &&
                         (s.groups == 1 || s.results <= kHalf || s.results == lanes);
  return !is_narrow || elements_of(problem.weights) * positions_of(problem) <= kFewProducts;
}

std::int64_t window_panels(const Problem& problem, KernelIsa isa) {
  return Shape(problem, isa).all_panels();
}

Ints window_weights(const Problem& problem, KernelIsa isa) {
  const Shape s(problem, isa);
  return {s.all_taps(), s.channels, s.groups * s.widths.vectors * s.widths.lanes};
}

void pack_window_weights(const Problem& problem, const float* weights, float* packed,
                         KernelIsa isa) {
  // Lines of the weights are read once: those of a few channels are in the first-level cache for all taps.
  constexpr std::int64_t kChannels = 8;
  const Shape s(problem, isa);
  const std::int64_t taps = s.all_taps();
  for (std::int64_t k = 0; k < s.all_panels(); ++k) {
    const std::int64_t panel = k % s.widths.panels;
    const std::int64_t first = s.widths.first_column(panel);
    const std::int64_t columns = s.widths.vectors_of(panel) * s.widths.lanes;
    const std::int64_t given = std::min(columns, s.results - first);
    const float* from = weights + (k / s.widths.panels * s.results + first) * s.channels * taps;
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
                 std::optional<Panels> panels, KernelIsa isa) {
  const Shape shape(problem, isa);
  const Call call{shape, panels.value_or(Panels{0, shape.all_panels()}), x, packed, bias, added,
                  out};
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
    follow(call, tail, block.from, block.count);
  }
}

}  // namespace heddle::jit::onednn
