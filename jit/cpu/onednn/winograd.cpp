#include "jit/cpu/onednn/winograd.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <vector>

namespace heddle::jit::onednn {

namespace {

/// What the kernel is made of for an instruction set.
struct Avx512 {
  using Vector = float __attribute__((vector_size(64), aligned(4), may_alias));
  using HalfVector = float __attribute__((vector_size(32), aligned(4), may_alias));
  using Doubles = double __attribute__((vector_size(64)));
  static constexpr std::int64_t kLanes = 16;
  static constexpr int kVectors = 4;  ///< of a row of a panel, at most
  /// Tiles that are multiplied at a time by one row of a panel, by its vectors.
  static constexpr std::array<int, kVectors> kRowsOf{8, 8, 4, 4};
};
struct Avx2 {
  using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));
  using HalfVector = float __attribute__((vector_size(16), aligned(4), may_alias));
  using Doubles = double __attribute__((vector_size(32)));
  static constexpr std::int64_t kLanes = 8;
  static constexpr int kVectors = 2;
  static constexpr std::array<int, kVectors> kRowsOf{6, 6};
};

/// Channels of x come in multiples of this; those of the result are filled up to one.
constexpr std::int64_t kChannels = 16;
/// Channels of the result come in multiples of this: the last vector of them is a half, or whole.
constexpr std::int64_t kResults = 8;
/// Rows and columns of x that a tile reads, which become as many points.
constexpr std::int64_t in_of(std::int64_t tile) { return tile + 2; }
constexpr std::int64_t points_of(std::int64_t tile) { return in_of(tile) * in_of(tile); }
/// Tiles are multiplied by kRows at a time, or by this many, so that any multiple of it comes out even.
constexpr int kRestRows = 4;
/// Channels of a part of a panel: 32 KiB.
constexpr std::int64_t kPartDepth = 128;
constexpr std::int64_t kLine = 64;
/// Of what a block of tiles becomes: it stays in a second-level cache beside the panels.
constexpr std::int64_t kBlockBytes = std::int64_t{1200} << 10;
/// The same beside weights of so many bytes, all of which each block reads from a third-level cache or from memory: fewer blocks.
constexpr std::int64_t kLargeBlockBytes = 2 * kBlockBytes;
constexpr std::int64_t kFarWeightBytes = std::int64_t{8} << 20;
/// Elements between what a block becomes at one point and at the next: the points of a tile would share sets of the first-level cache.
constexpr std::int64_t kApart = 16;

// Everything is inlined into a function for each instruction set: nothing else runs them.
#define HEDDLE_INLINE [[gnu::always_inline]] inline
#define HEDDLE_AVX2 [[gnu::target("avx2,fma")]]
#define HEDDLE_AVX512 [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")]]

template <typename Vector>
HEDDLE_INLINE void load(Vector& v, const float* at) {
  v = *reinterpret_cast<const Vector*>(at);
}
template <typename Vector>
HEDDLE_INLINE void store(float* at, const Vector& v) {
  *reinterpret_cast<Vector*>(at) = v;
}

struct Shape {
  std::int64_t batch, height, width, channels;  ///< of x
  std::int64_t rows, columns, results;          ///< of the result
  std::int64_t filled;     ///< its channels, with those that fill the last panel up
  std::int64_t top, left;  ///< padding
  std::int64_t tile, tiles_down, tiles_across, panel, panels;
  std::int64_t first_panel, last_panel;  ///< those that are computed

  Shape(const Problem& p, const WinogradKernel& kernel, std::optional<Panels> some = {})
      : batch(p.x[0]),
        height(p.x[2]),
        width(p.x[3]),
        channels(p.x[1]),
        rows(p.result[2]),
        columns(p.result[3]),
        results(p.result[1]),
        filled((results + kChannels - 1) / kChannels * kChannels),
        top(p.pads_low[0]),
        left(p.pads_low[1]),
        tile(kernel.tile),
        tiles_down((rows + tile - 1) / tile),
        tiles_across((columns + tile - 1) / tile),
        panel(widest_panel(filled, kernel.isa)),
        panels(filled / panel),
        first_panel(some ? some->begin : 0),
        last_panel(some ? some->end : panels) {}

  /// Channels of the result that are computed.
  std::int64_t first_result() const { return first_panel * panel; }
  std::int64_t last_result() const { return std::min(results, last_panel * panel); }

  /// Columns of a panel: the most whole vectors that divide all.
  static std::int64_t widest_panel(std::int64_t filled, WinogradIsa isa) {
    const bool wide = isa == WinogradIsa::Avx512;
    const std::int64_t lanes = wide ? Avx512::kLanes : Avx2::kLanes;
    std::int64_t vectors = wide ? Avx512::kVectors : Avx2::kVectors;
    while (filled % (vectors * lanes) != 0) --vectors;
    return vectors * lanes;
  }

  std::int64_t tiles() const { return tiles_down * tiles_across; }
  /// Of a block, a multiple of kRestRows.
  std::int64_t block() const {
    const std::int64_t each = points_of(tile) * (channels + filled) * 4;
    const bool is_far = points_of(tile) * channels * filled * 4 >= kFarWeightBytes;
    const std::int64_t bytes = is_far ? kLargeBlockBytes : kBlockBytes;
    const std::int64_t most =
        std::max<std::int64_t>(kRestRows, bytes / each / kRestRows * kRestRows);
    return std::min(most, (tiles() + kRestRows - 1) / kRestRows * kRestRows);
  }
  /// From a point of a block to the next, in its transformed elements and in its sums.
  std::int64_t point_step() const { return block() * channels + kApart; }
  std::int64_t sum_step() const { return block() * filled + kApart; }
};

/// B^T of a tile of `Tile` rows times the elements of `v`, `step` apart.
template <std::int64_t Tile, typename Vector>
HEDDLE_INLINE void transform_in(Vector* v, std::int64_t step) {
  const Vector v0 = v[0];
  const Vector v1 = v[step];
  const Vector v2 = v[2 * step];
  const Vector v3 = v[3 * step];
  if constexpr (Tile == kSmallTile) {
    v[0] = v0 - v2;
    v[step] = v1 + v2;
    v[2 * step] = v2 - v1;
    v[3 * step] = v1 - v3;
  } else {
    const Vector v4 = v[4 * step];
    const Vector v5 = v[5 * step];
    const Vector even = v4 - 4.0f * v2;
    const Vector odd = v3 - 4.0f * v1;
    const Vector even2 = v4 - v2;
    const Vector odd2 = 2.0f * (v3 - v1);
    v[0] = 4.0f * v0 - 5.0f * v2 + v4;
    v[step] = even + odd;
    v[2 * step] = even - odd;
    v[3 * step] = even2 + odd2;
    v[4 * step] = even2 - odd2;
    v[5 * step] = 4.0f * v1 - 5.0f * v3 + v5;
  }
}

/// A^T times the elements of `v`, into its first `Tile`.
template <std::int64_t Tile, typename Vector>
HEDDLE_INLINE void transform_out(Vector* v, std::int64_t step) {
  const Vector sum = v[step] + v[2 * step];
  const Vector difference = v[step] - v[2 * step];
  if constexpr (Tile == kSmallTile) {
    v[0] = v[0] + sum;
    v[step] = difference - v[3 * step];
  } else {
    const Vector sum2 = v[3 * step] + v[4 * step];
    const Vector difference2 = v[3 * step] - v[4 * step];
    v[0] = v[0] + sum + sum2;
    v[step] = difference + 2.0f * difference2;
    v[2 * step] = sum + 4.0f * sum2;
    v[3 * step] = difference + 8.0f * difference2 + v[5 * step];
  }
}

/// Tile `tile` of the image `x` to tile `slot` of `points` [points, block, channels], `step` from point to point. What the tile to the right reads is fetched meanwhile.
template <typename Isa, std::int64_t Tile>
HEDDLE_INLINE void bring(const Shape& s, const float* x, const float* zeros, std::int64_t tile,
                         std::int64_t slot, std::int64_t step, float* points) {
  constexpr std::int64_t kIn = in_of(Tile);
  constexpr std::int64_t kPoints = points_of(Tile);
  const std::int64_t y = tile / s.tiles_across * Tile - s.top;
  const std::int64_t z = tile % s.tiles_across * Tile - s.left;
  std::array<const float*, kPoints> from;
  for (std::int64_t i = 0; i < kIn; ++i)
    for (std::int64_t j = 0; j < kIn; ++j) {
      const bool inside = y + i >= 0 && y + i < s.height && z + j >= 0 && z + j < s.width;
      from[static_cast<std::size_t>(i * kIn + j)] =
          inside ? x + ((y + i) * s.width + z + j) * s.channels : zeros;
    }
  const std::int64_t right = Tile * s.channels;
  for (std::int64_t c = 0; c < s.channels; c += Isa::kLanes) {
    typename Isa::Vector v[kPoints];
#pragma GCC unroll 6
    for (std::int64_t j = 0; j < kIn; ++j) {
#pragma GCC unroll 6
      for (std::int64_t i = 0; i < kIn; ++i) {
        const float* at = from[static_cast<std::size_t>(i * kIn + j)] + c;
        load(v[i * kIn + j], at);
        if (j >= kIn - Tile) __builtin_prefetch(at + right);
      }
      transform_in<Tile>(v + j, kIn);
    }
    float* to = points + slot * s.channels + c;
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < kIn; ++i) {
      transform_in<Tile>(v + i * kIn, 1);
#pragma GCC unroll 6
      for (std::int64_t j = 0; j < kIn; ++j) store(to + (i * kIn + j) * step, v[i * kIn + j]);
    }
  }
}

/// Adds `depth` channels of `Rows` tiles times those rows of a panel [depth, `Vectors` of them] to `sums`, or begins with 0.
/// `ahead`: lines to fetch meanwhile, one every other step, or each step where `often`.
template <typename Isa, int Rows, int Vectors>
HEDDLE_INLINE void multiply_rows(const Shape& s, const float* a, std::int64_t depth,
                                 const float* panel, const char* ahead, bool often, bool begins,
                                 float* sums) {
  using Vector = typename Isa::Vector;
  constexpr std::int64_t kLanes = Isa::kLanes;
  Vector acc[Rows][Vectors] = {};
#pragma GCC unroll 8
  for (int r = 0; r < Rows && !begins; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) load(acc[r][v], sums + r * s.filled + v * kLanes);
  for (std::int64_t k = 0; k < depth; k += 2) {
    __builtin_prefetch(ahead, 0, 2);
    if (often) __builtin_prefetch(ahead + kLine, 0, 2);
    ahead += often ? 2 * kLine : kLine;
#pragma GCC unroll 2
    for (std::int64_t step = 0; step < 2; ++step) {
      Vector b[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) load(b[v], panel + v * kLanes);
      panel += Vectors * kLanes;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const Vector wide = a[r * s.channels + k + step] - Vector{};
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) acc[r][v] += wide * b[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(sums + r * s.filled + v * kLanes, acc[r][v]);
}

/// `count` tiles of one point times one panel: part of the depth by part, which stays in the first-level cache while all
/// tiles pass over it.
template <typename Isa, int Vectors>
HEDDLE_INLINE void multiply_panel(const Shape& s, const float* points, const float* panel,
                                  std::int64_t count, float* sums) {
  constexpr int kRows = Isa::kRowsOf[Vectors - 1];
  const bool often = count <= kRestRows * 4;
  for (std::int64_t k = 0; k < s.channels; k += kPartDepth) {
    const std::int64_t depth = std::min(kPartDepth, s.channels - k);
    const float* part = panel + k * s.panel;
    const char* ahead = reinterpret_cast<const char*>(part + depth * s.panel);
    const auto multiply = [&]<int Rows>(std::int64_t r, std::integral_constant<int, Rows>)
                              __attribute__((always_inline)) {
                                multiply_rows<Isa, Rows, Vectors>(s, points + r * s.channels + k,
                                                                  depth, part, ahead, often, k == 0,
                                                                  sums + r * s.filled);
                                ahead += depth / 2 * (often ? 2 * kLine : kLine);
                              };
    for (std::int64_t r = 0; r < count;) {
      const std::int64_t left = count - r;
      const bool whole = left % kRows == 0 || left > 2 * kRestRows;
      if (whole)
        multiply(r, std::integral_constant<int, kRows>());
      else
        multiply(r, std::integral_constant<int, kRestRows>());
      r += whole ? kRows : kRestRows;
    }
  }
}

template <typename Isa, int Vectors>
HEDDLE_INLINE void multiply_panels(const Shape& s, const float* points, const float* weights,
                                   std::int64_t count, float* sums) {
  const std::int64_t point_step = s.point_step();
  const std::int64_t sum_step = s.sum_step();
  for (std::int64_t k = 0; k < points_of(s.tile); ++k)
    for (std::int64_t n = s.first_panel; n < s.last_panel; ++n)
      multiply_panel<Isa, Vectors>(s, points + k * point_step,
                                   weights + (k * s.panels + n) * s.channels * s.panel, count,
                                   sums + k * sum_step + n * s.panel);
}

/// The `Vector` of channels from `c` on of tile `slot` of `sums` [points, block, columns], `step` from point to point, to its place, of `down` x `across` positions,
/// in an image; `added` and `out` at the first of them.
template <typename Vector, std::int64_t Tile>
HEDDLE_INLINE void put_channels(const Shape& s, const float* sums, std::int64_t slot,
                                std::int64_t step, std::int64_t c, std::int64_t down,
                                std::int64_t across, const float* bias, const float* added,
                                float* out) {
  constexpr std::int64_t kIn = in_of(Tile);
  Vector v[points_of(Tile)];
  const float* from = sums + slot * s.filled + c;
#pragma GCC unroll 6
  for (std::int64_t j = 0; j < kIn; ++j) {
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < kIn; ++i) load(v[i * kIn + j], from + (i * kIn + j) * step);
    transform_out<Tile>(v + j, kIn);
  }
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < Tile; ++i) transform_out<Tile>(v + i * kIn, 1);
  Vector shift{};
  if (bias != nullptr) load(shift, bias + c);
  for (std::int64_t i = 0; i < down; ++i)
    for (std::int64_t j = 0; j < across; ++j) {
      const std::int64_t at = (i * s.columns + j) * s.results + c;
      Vector value = v[i * kIn + j] + shift;
      Vector other{};
      if (added != nullptr) load(other, added + at);
      value += other;
      store(out + at, value);
      // Lines of the tile to the right, which would be waited for one by one where no cache holds them.
      __builtin_prefetch(out + at + Tile * s.results, 1);
    }
}

/// Tile `slot` of `sums` to its place in the image `out`.
template <typename Isa, std::int64_t Tile>
HEDDLE_INLINE void put(const Shape& s, const float* sums, std::int64_t tile, std::int64_t slot,
                       std::int64_t step, const float* bias, const float* added, float* out) {
  const std::int64_t y = tile / s.tiles_across * Tile;
  const std::int64_t z = tile % s.tiles_across * Tile;
  const std::int64_t down = std::min(Tile, s.rows - y);
  const std::int64_t across = std::min(Tile, s.columns - z);
  const std::int64_t first = (y * s.columns + z) * s.results;
  out += first;
  if (added != nullptr) added += first;
  const std::int64_t last = s.last_result();
  std::int64_t c = s.first_result();
  for (; c + Isa::kLanes <= last; c += Isa::kLanes)
    put_channels<typename Isa::Vector, Tile>(s, sums, slot, step, c, down, across, bias, added,
                                             out);
  if (c < last)
    put_channels<typename Isa::HalfVector, Tile>(s, sums, slot, step, c, down, across, bias, added,
                                                 out);
}

/// What follows, on rows [begin, end) of an image of `out`.
HEDDLE_INLINE void follow(const Shape& s, std::int64_t image, std::int64_t begin, std::int64_t end,
                          std::span<const TailOp> tail, float* out) {
  if (begin >= end || tail.empty()) return;
  std::array<TailOp, kMaxEpilogue> ops;
  const bool whole = s.last_panel - s.first_panel == s.panels;
  const std::int64_t positions = whole ? (end - begin) * s.columns : 1;
  const std::int64_t channels = s.last_result() - s.first_result();
  for (std::int64_t at = begin * s.columns; at < end * s.columns; at += positions) {
    const std::int64_t first = image + at * s.results + s.first_result();
    std::ranges::copy(tail, ops.begin());
    for (std::size_t k = 0; k < tail.size(); ++k) {
      const bool by_element = ops[k].op.kind == EpilogueOp::Kind::Add;
      if (ops[k].operand != nullptr) ops[k].operand += by_element ? first : s.first_result();
    }
    run_tail({ops.data(), tail.size()}, out + first, positions, channels);
  }
}

struct Buffers {
  float* points;
  float* sums;
  float* zeros;
};

template <typename Isa, std::int64_t Tile>
HEDDLE_INLINE void run_tiles(const Shape& s, const float* x, const float* weights,
                             const float* bias, const float* added, float* out,
                             const Buffers& buffers, std::int64_t first, std::int64_t count) {
  const std::int64_t point_step = s.point_step();
  for (std::int64_t k = 0; k < count; ++k)
    bring<Isa, Tile>(s, x, buffers.zeros, first + k, k, point_step, buffers.points);
  const std::int64_t whole = (count + kRestRows - 1) / kRestRows * kRestRows;
  const std::int64_t vectors = s.panel / Isa::kLanes;
  const auto multiply =
      [&]<int Vectors>(std::integral_constant<int, Vectors>) __attribute__((always_inline)) {
        if (vectors == Vectors)
          multiply_panels<Isa, Vectors>(s, buffers.points, weights, whole, buffers.sums);
      };
  multiply(std::integral_constant<int, 1>());
  multiply(std::integral_constant<int, 2>());
  if constexpr (Isa::kVectors > 2) {
    multiply(std::integral_constant<int, 3>());
    multiply(std::integral_constant<int, 4>());
  }
  const std::int64_t sum_step = s.sum_step();
  for (std::int64_t k = 0; k < count; ++k)
    put<Isa, Tile>(s, buffers.sums, first + k, k, sum_step, bias, added, out);
}

template <typename Isa>
HEDDLE_INLINE void run_any(const Shape& s, const float* x, const float* weights, const float* bias,
                           const float* added, float* out, const Buffers& buffers,
                           std::int64_t first, std::int64_t count) {
  if (s.tile == kSmallTile)
    run_tiles<Isa, kSmallTile>(s, x, weights, bias, added, out, buffers, first, count);
  else
    run_tiles<Isa, kWinogradTile>(s, x, weights, bias, added, out, buffers, first, count);
}

HEDDLE_AVX512 void run_on_avx512(const Shape& s, const float* x, const float* weights,
                                 const float* bias, const float* added, float* out,
                                 const Buffers& buffers, std::int64_t first, std::int64_t count) {
  run_any<Avx512>(s, x, weights, bias, added, out, buffers, first, count);
}

HEDDLE_AVX2 void run_on_avx2(const Shape& s, const float* x, const float* weights,
                             const float* bias, const float* added, float* out,
                             const Buffers& buffers, std::int64_t first, std::int64_t count) {
  run_any<Avx2>(s, x, weights, bias, added, out, buffers, first, count);
}

/// G of a tile of `Tile` rows times the three elements of `v`, `step` apart: elements of `out`, `out_step` apart.
template <std::int64_t Tile, typename Doubles>
HEDDLE_INLINE void transform_three(const Doubles* v, std::int64_t step, Doubles* out,
                                   std::int64_t out_step) {
  const Doubles ends = v[0] + v[2 * step];
  if constexpr (Tile == kSmallTile) {
    out[0] = v[0];
    out[out_step] = 0.5 * (ends + v[step]);
    out[2 * out_step] = 0.5 * (ends - v[step]);
    out[3 * out_step] = v[2 * step];
  } else {
    constexpr double kSixth = 1.0 / 6;
    const Doubles far = 0.25 * v[0] + v[2 * step];
    const Doubles middle = 0.5 * v[step];
    out[0] = 0.25 * v[0];
    out[out_step] = -kSixth * (ends + v[step]);
    out[2 * out_step] = -kSixth * (ends - v[step]);
    out[3 * out_step] = kSixth * (far + middle);
    out[4 * out_step] = kSixth * (far - middle);
    out[5 * out_step] = v[2 * step];
  }
}

/// As many results as there are lanes at a time: their 3 x 3 weights of a channel, in double precision.
template <typename Isa, std::int64_t Tile>
HEDDLE_INLINE void transform_all(const Shape& s, const float* weights, float* transformed) {
  using Doubles = typename Isa::Doubles;
  using Floats = typename Isa::HalfVector;
  constexpr std::int64_t kIn = in_of(Tile);
  constexpr std::int64_t kLanes = Isa::kLanes / 2;
  const std::int64_t step = s.panels * s.channels * s.panel;  // from a point to the next
  for (std::int64_t row = 0; row < s.panels * s.channels; ++row)
    for (std::int64_t column = 0; column < s.panel; column += kLanes) {
      const std::int64_t m = row / s.channels * s.panel + column;
      const std::int64_t c = row % s.channels;
      alignas(64) float given[9][kLanes];
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        for (std::int64_t k = 0; k < 9; ++k)
          given[k][lane] =
              m + lane < s.results ? weights[((m + lane) * s.channels + c) * 9 + k] : 0.0f;
      Doubles w[9];
      for (std::int64_t k = 0; k < 9; ++k)
        w[k] = __builtin_convertvector(*reinterpret_cast<const Floats*>(given[k]), Doubles);
      Doubles half[kIn * 3];
      for (std::int64_t j = 0; j < 3; ++j) transform_three<Tile>(w + j, 3, half + j, 3);
      float* to = transformed + row * s.panel + column;
      for (std::int64_t i = 0; i < kIn; ++i) {
        Doubles points[kIn];
        transform_three<Tile>(half + i * 3, 1, points, 1);
        for (std::int64_t j = 0; j < kIn; ++j)
          *reinterpret_cast<Floats*>(to + (i * kIn + j) * step) =
              __builtin_convertvector(points[j], Floats);
      }
    }
}

template <typename Isa>
HEDDLE_INLINE void transform_any(const Shape& s, const float* weights, float* transformed) {
  if (s.tile == kSmallTile)
    transform_all<Isa, kSmallTile>(s, weights, transformed);
  else
    transform_all<Isa, kWinogradTile>(s, weights, transformed);
}

HEDDLE_AVX512 void transform_on_avx512(const Shape& s, const float* weights, float* transformed) {
  transform_any<Avx512>(s, weights, transformed);
}
HEDDLE_AVX2 void transform_on_avx2(const Shape& s, const float* weights, float* transformed) {
  transform_any<Avx2>(s, weights, transformed);
}

#undef HEDDLE_INLINE
#undef HEDDLE_AVX2
#undef HEDDLE_AVX512

}  // namespace

std::span<const WinogradIsa> winograd_isas() {
  static const std::vector<WinogradIsa> found = [] {
    std::vector<WinogradIsa> isas;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
      isas.push_back(WinogradIsa::Avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      isas.push_back(WinogradIsa::Avx2);
    return isas;
  }();
  return found;
}

bool has_winograd(const Problem& problem) {
  return !winograd_isas().empty() && problem.x[1] % kChannels == 0 &&
         problem.result[1] % kResults == 0;
}

Ints winograd_weights(const Problem& problem, const WinogradKernel& kernel) {
  const Shape s(problem, kernel);
  return {points_of(s.tile), s.panels, s.channels, s.panel};
}

void transform_weights(const Problem& problem, const float* weights, float* transformed,
                       const WinogradKernel& kernel) {
  const Shape s(problem, kernel);
  const auto run = kernel.isa == WinogradIsa::Avx512 ? transform_on_avx512 : transform_on_avx2;
  run(s, weights, transformed);
}

std::int64_t winograd_scratch(const Problem& problem, const WinogradKernel& kernel) {
  const Shape s(problem, kernel);
  return (points_of(s.tile) * (s.point_step() + s.sum_step()) + s.channels) * 4;
}

void run_winograd(const Problem& problem, const float* x, const float* transformed,
                  const float* bias, const float* added, std::span<const TailOp> tail, float* out,
                  void* scratch, std::optional<Panels> panels, const WinogradKernel& kernel) {
  const Shape s(problem, kernel, panels);
  const std::int64_t block = s.block();
  Buffers buffers{static_cast<float*>(scratch), nullptr, nullptr};
  buffers.sums = buffers.points + points_of(s.tile) * s.point_step();
  buffers.zeros = buffers.sums + points_of(s.tile) * s.sum_step();
  std::fill_n(buffers.zeros, s.channels, 0.0f);
  for (std::int64_t n = 0; n < s.batch; ++n) {
    const std::int64_t image = n * s.rows * s.columns * s.results;
    const float* from = x + n * s.height * s.width * s.channels;
    std::int64_t complete = 0;
    for (std::int64_t first = 0; first < s.tiles(); first += block) {
      const std::int64_t count = std::min(block, s.tiles() - first);
      const auto run = kernel.isa == WinogradIsa::Avx512 ? run_on_avx512 : run_on_avx2;
      run(s, from, transformed, bias, added == nullptr ? nullptr : added + image, out + image,
          buffers, first, count);
      const std::int64_t now = std::min(s.rows, (first + count) / s.tiles_across * s.tile);
      const std::int64_t end = first + count == s.tiles() ? s.rows : now;
      follow(s, image, complete, end, tail, out);
      complete = end;
    }
  }
}

}  // namespace heddle::jit::onednn
