#include "jit/cpu/onednn/winograd.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>

namespace heddle::jit::onednn {

namespace {

/// Tiles that are multiplied at a time by one row of a panel, by its vectors.
template <typename Isa>
constexpr std::array<int, Isa::kVectors> kRowsOf{};
template <>
constexpr std::array<int, Avx512::kVectors> kRowsOf<Avx512>{8, 8, 4};
template <>
constexpr std::array<int, Avx2::kVectors> kRowsOf<Avx2>{6, 6};

// Channels of the result are filled up to a multiple of kTiledChannels; the last vector of them is a half, or whole.
/// Tiles are multiplied by kRows at a time, or by this many, so that any multiple of it comes out even.
constexpr int kRestRows = 4;
/// Channels of a part of a panel: 16 KiB of two vectors.
constexpr std::int64_t kPartDepth = 128;
constexpr std::int64_t kLine = 64;
/// Panels that pass over the elements of a point before those of the next point do.
constexpr std::int64_t kGroupPanels = 2;
/// Of what a block of tiles becomes: it stays in a second-level cache beside the panels.
constexpr std::int64_t kBlockBytes = std::int64_t{1200} << 10;
/// The same beside weights of so many bytes, all of which each block reads from a third-level cache or from memory: fewer blocks.
constexpr std::int64_t kLargeBlockBytes = 2 * kBlockBytes;
constexpr std::int64_t kFarWeightBytes = std::int64_t{8} << 20;
/// Elements between what a block becomes at one point and at the next: the points of a tile would share sets of the first-level cache.
constexpr std::int64_t kApart = 16;

/// Calls `f` with the one of kTileForms that `form` is, as a template argument.
template <std::size_t At = 0, typename F>
HEDDLE_INLINE void with_form(const TileForm& form, const F& f) {
  if constexpr (At < kTileForms.size()) {
    if (form == kTileForms[At])
      f.template operator()<kTileForms[At]>();
    else
      with_form<At + 1>(form, f);
  }
}

struct Shape {
  std::int64_t batch, height, width, channels;  ///< of x
  std::int64_t rows, columns, results;          ///< of the result
  std::int64_t filled;     ///< its channels, with those that fill the last panel up
  std::int64_t top, left;  ///< padding
  TileForm form;
  std::int64_t tiles_down, tiles_across;
  PanelWidths widths;
  Panels computed;

  Shape(const Problem& p, const WinogradKernel& kernel, std::optional<Panels> some = {})
      : batch(p.x[0]),
        height(p.x[2]),
        width(p.x[3]),
        channels(p.x[1]),
        rows(p.result[2]),
        columns(p.result[3]),
        results(p.result[1]),
        filled((results + kTiledChannels - 1) / kTiledChannels * kTiledChannels),
        top(p.pads_low[0]),
        left(p.pads_low[1]),
        form(kernel.form),
        tiles_down((rows + form.down - 1) / form.down),
        tiles_across((columns + form.across - 1) / form.across),
        widths(filled, kernel.isa),
        computed(some.value_or(Panels{0, widths.panels})) {}

  /// Channels of the result that are computed.
  std::int64_t first_result() const { return widths.first_column(computed.begin); }
  std::int64_t last_result() const { return std::min(results, widths.first_column(computed.end)); }

  std::int64_t tiles() const { return tiles_down * tiles_across; }
  /// Where the weights of a panel lie for a point.
  const float* weights_at(const float* weights, std::int64_t panel, std::int64_t point) const {
    const std::int64_t columns = widths.vectors_of(panel) * widths.lanes;
    return weights + (widths.first_column(panel) * form.points() + columns * point) * channels;
  }
  /// Columns of the widest panel.
  std::int64_t panel() const { return widths.vectors_of(widths.panels - 1) * widths.lanes; }
  std::int64_t group_columns() const { return std::min(widths.panels, kGroupPanels) * panel(); }
  /// Of a block, a multiple of kRestRows.
  std::int64_t block() const {
    const std::int64_t each = form.points() * (channels + group_columns()) * 4;
    const bool is_far = form.points() * channels * filled * 4 >= kFarWeightBytes;
    const std::int64_t bytes = is_far ? kLargeBlockBytes : kBlockBytes;
    const std::int64_t most =
        std::max<std::int64_t>(kRestRows, bytes / each / kRestRows * kRestRows);
    return std::min(most, (tiles() + kRestRows - 1) / kRestRows * kRestRows);
  }
  /// From a point of a block to the next, in its transformed elements and in its sums.
  std::int64_t point_step() const { return block() * channels + kApart; }
  std::int64_t sum_step() const { return block() * group_columns() + kApart; }
};

/// B^T of `Points` points times the elements of `v`, `step` apart.
template <std::int64_t Points, typename Vector>
HEDDLE_INLINE void transform_in(Vector* v, std::int64_t step) {
  static_assert(Points == 1 || Points == 4 || Points == 6);
  if constexpr (Points == 4) {
    const Vector v1 = v[step];
    const Vector v2 = v[2 * step];
    v[0] = v[0] - v2;
    v[step] = v1 + v2;
    v[2 * step] = v2 - v1;
    v[3 * step] = v1 - v[3 * step];
  } else if constexpr (Points == 6) {
    const Vector v0 = v[0];
    const Vector v1 = v[step];
    const Vector v2 = v[2 * step];
    const Vector v3 = v[3 * step];
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

/// A^T of `Points` points times the elements of `v`, into its first `Count`.
template <std::int64_t Count, std::int64_t Points, typename Vector>
HEDDLE_INLINE void transform_out(Vector* v, std::int64_t step) {
  static_assert(Points == 1 || (Points == 4 && Count == 2) ||
                (Points == 6 && (Count == 2 || Count == 4)));
  if constexpr (Points == 1) return;
  const Vector sum = v[step] + v[2 * step];
  const Vector difference = v[step] - v[2 * step];
  if constexpr (Points == 4) {
    v[0] = v[0] + sum;
    v[step] = difference - v[3 * step];
  } else {
    const Vector sum2 = v[3 * step] + v[4 * step];
    const Vector difference2 = v[3 * step] - v[4 * step];
    v[0] = v[0] + sum + sum2;
    v[step] = difference + 2.0f * difference2;
    if constexpr (Count == 2) {
      v[step] += v[5 * step];
    } else {
      v[2 * step] = sum + 4.0f * sum2;
      v[3 * step] = difference + 8.0f * difference2 + v[5 * step];
    }
  }
}

/// Tile `tile` of the image `x` to tile `slot` of `points` [points, block, channels], `step` from point to point. What the tile to the
/// right reads is fetched meanwhile.
template <typename Isa, TileForm Form>
HEDDLE_INLINE void bring(const Shape& s, const float* x, const float* zeros, std::int64_t tile,
                         std::int64_t slot, std::int64_t step, float* points) {
  constexpr std::int64_t kDown = Form.in_down();
  constexpr std::int64_t kAcross = Form.in_across();
  const std::int64_t y = tile / s.tiles_across * Form.down - s.top;
  const std::int64_t z = tile % s.tiles_across * Form.across - s.left;
  std::array<const float*, Form.points()> from;
  for (std::int64_t i = 0; i < kDown; ++i)
    for (std::int64_t j = 0; j < kAcross; ++j) {
      const bool inside = y + i >= 0 && y + i < s.height && z + j >= 0 && z + j < s.width;
      from[static_cast<std::size_t>(i * kAcross + j)] =
          inside ? x + ((y + i) * s.width + z + j) * s.channels : zeros;
    }
  const std::int64_t right = Form.across * s.channels;
  for (std::int64_t c = 0; c < s.channels; c += Isa::kLanes) {
    typename Isa::Vector v[Form.points()];
#pragma GCC unroll 6
    for (std::int64_t j = 0; j < kAcross; ++j) {
#pragma GCC unroll 6
      for (std::int64_t i = 0; i < kDown; ++i) {
        const float* at = from[static_cast<std::size_t>(i * kAcross + j)] + c;
        load(v[i * kAcross + j], at);
        if (j >= kAcross - Form.across) __builtin_prefetch(at + right);
      }
      transform_in<kDown>(v + j, kAcross);
    }
    float* to = points + slot * s.channels + c;
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < kDown; ++i) {
      transform_in<kAcross>(v + i * kAcross, 1);
#pragma GCC unroll 6
      for (std::int64_t j = 0; j < kAcross; ++j)
        store(to + (i * kAcross + j) * step, v[i * kAcross + j]);
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
    for (int v = 0; v < Vectors; ++v) load(acc[r][v], sums + (r * Vectors + v) * kLanes);
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
    for (int v = 0; v < Vectors; ++v) store(sums + (r * Vectors + v) * kLanes, acc[r][v]);
}

/// `count` tiles of one point times one panel: part of the depth by part, which stays in the first-level cache while all
/// tiles pass over it. `next`: weights that are read after them.
template <typename Isa, int Vectors>
HEDDLE_INLINE void multiply_panel(const Shape& s, const float* points, const float* panel,
                                  const float* next, std::int64_t count, float* sums) {
  constexpr int kRows = kRowsOf<Isa>[Vectors - 1];
  const bool often = count <= kRestRows * 4;
  constexpr std::int64_t kColumns = Vectors * Isa::kLanes;
  for (std::int64_t k = 0; k < s.channels; k += kPartDepth) {
    const std::int64_t depth = std::min(kPartDepth, s.channels - k);
    const float* part = panel + k * kColumns;
    const bool ends = k + depth == s.channels;
    const char* ahead = reinterpret_cast<const char*>(ends ? next : part + depth * kColumns);
    const auto multiply = [&]<int Rows>(std::int64_t r, std::integral_constant<int, Rows>)
                              __attribute__((always_inline)) {
                                multiply_rows<Isa, Rows, Vectors>(s, points + r * s.channels + k,
                                                                  depth, part, ahead, often, k == 0,
                                                                  sums + r * kColumns);
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

/// A vector of channels of a tile's sums, the one at `sums` of its first point and others `step` apart, to its place, of `down` x `across`
/// positions, in an image: from channel `c` on, `added` and `out` at the first position.
template <typename Vector, TileForm Form>
HEDDLE_INLINE void put_channels(const Shape& s, const float* sums, std::int64_t step,
                                std::int64_t c, std::int64_t down, std::int64_t across,
                                const float* bias, const float* added, float* out) {
  constexpr std::int64_t kDown = Form.in_down();
  constexpr std::int64_t kAcross = Form.in_across();
  Vector v[Form.points()];
#pragma GCC unroll 6
  for (std::int64_t j = 0; j < kAcross; ++j) {
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < kDown; ++i)
      load(v[i * kAcross + j], sums + (i * kAcross + j) * step);
    transform_out<Form.down, kDown>(v + j, kAcross);
  }
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < Form.down; ++i)
    transform_out<Form.across, kAcross>(v + i * kAcross, 1);
  Vector shift{};
  if (bias != nullptr) load(shift, bias + c);
  for (std::int64_t i = 0; i < down; ++i)
    for (std::int64_t j = 0; j < across; ++j) {
      const std::int64_t at = (i * s.columns + j) * s.results + c;
      Vector value = v[i * kAcross + j] + shift;
      Vector other{};
      if (added != nullptr) load(other, added + at);
      value += other;
      store(out + at, value);
      // Lines of the tile to the right, which would be waited for one by one where no cache holds them.
      __builtin_prefetch(out + at + Form.across * s.results, 1);
    }
}

/// What panel `panel` gives of a tile to its place in the image `out`; `sums` of its first point.
template <typename Isa, TileForm Form>
HEDDLE_INLINE void put(const Shape& s, const float* sums, std::int64_t step, std::int64_t panel,
                       std::int64_t tile, const float* bias, const float* added, float* out) {
  const std::int64_t y = tile / s.tiles_across * Form.down;
  const std::int64_t z = tile % s.tiles_across * Form.across;
  const std::int64_t down = std::min(Form.down, s.rows - y);
  const std::int64_t across = std::min(Form.across, s.columns - z);
  const std::int64_t first = (y * s.columns + z) * s.results;
  out += first;
  if (added != nullptr) added += first;
  const std::int64_t last = std::min(s.results, s.widths.first_column(panel + 1));
  std::int64_t c = s.widths.first_column(panel);
  for (; c + Isa::kLanes <= last; c += Isa::kLanes, sums += Isa::kLanes)
    put_channels<typename Isa::Vector, Form>(s, sums, step, c, down, across, bias, added, out);
  if (c < last)
    put_channels<typename Isa::HalfVector, Form>(s, sums, step, c, down, across, bias, added, out);
}

/// What follows, on rows [begin, end) of an image of `out`.
HEDDLE_INLINE void follow(const Shape& s, std::int64_t image, std::int64_t begin, std::int64_t end,
                          std::span<const TailOp> tail, float* out) {
  if (begin >= end || tail.empty()) return;
  std::array<TailOp, kMaxEpilogue> ops;
  const std::int64_t first = image + begin * s.columns * s.results + s.first_result();
  std::ranges::copy(tail, ops.begin());
  for (std::size_t k = 0; k < tail.size(); ++k) {
    const bool by_element = ops[k].op.kind == EpilogueOp::Kind::Add;
    if (ops[k].operand != nullptr) ops[k].operand += by_element ? first : s.first_result();
  }
  run_tail({ops.data(), tail.size()}, out + first, (end - begin) * s.columns,
           s.last_result() - s.first_result(), s.results);
}

struct Buffers {
  float* points;
  float* sums;
  float* zeros;
};

template <typename Isa, TileForm Form>
HEDDLE_INLINE void run_tiles(const Shape& s, const float* x, const float* weights,
                             const float* bias, const float* added, float* out,
                             const Buffers& buffers, std::int64_t first, std::int64_t count) {
  const std::int64_t point_step = s.point_step();
  for (std::int64_t k = 0; k < count; ++k)
    bring<Isa, Form>(s, x, buffers.zeros, first + k, k, point_step, buffers.points);
  const std::int64_t whole = (count + kRestRows - 1) / kRestRows * kRestRows;
  const std::int64_t sum_step = s.sum_step();
  const std::int64_t panel_step = s.block() * s.panel();
  for (std::int64_t g = s.computed.begin; g < s.computed.end; g += kGroupPanels) {
    const std::int64_t end = std::min(g + kGroupPanels, s.computed.end);
    for (std::int64_t k = 0; k < Form.points(); ++k)
      for (std::int64_t n = g; n < end; ++n) {
        std::int64_t next_point = k;
        std::int64_t next_panel = n + 1;
        if (next_panel == end) {
          next_panel = g;
          ++next_point;
        }
        if (next_point == Form.points()) {
          next_point = 0;
          next_panel = end == s.computed.end ? s.computed.begin : end;
        }
        const float* panel = s.weights_at(weights, n, k);
        const float* next = s.weights_at(weights, next_panel, next_point);
        float* sums = buffers.sums + k * sum_step + (n - g) * panel_step;
        const std::int64_t vectors = s.widths.vectors_of(n);
        const auto multiply =
            [&]<int Vectors>(std::integral_constant<int, Vectors>) __attribute__((always_inline)) {
              if (vectors == Vectors)
                multiply_panel<Isa, Vectors>(s, buffers.points + k * point_step, panel, next, whole,
                                             sums);
            };
        multiply(std::integral_constant<int, 1>());
        multiply(std::integral_constant<int, 2>());
        if constexpr (Isa::kVectors > 2) multiply(std::integral_constant<int, 3>());
      }
    for (std::int64_t k = 0; k < count; ++k)
      for (std::int64_t n = g; n < end; ++n) {
        const std::int64_t columns = s.widths.vectors_of(n) * Isa::kLanes;
        const float* sums = buffers.sums + (n - g) * panel_step + k * columns;
        put<Isa, Form>(s, sums, sum_step, n, first + k, bias, added, out);
      }
  }
}

template <typename Isa>
HEDDLE_INLINE void run_any(const Shape& s, const float* x, const float* weights, const float* bias,
                           const float* added, float* out, const Buffers& buffers,
                           std::int64_t first, std::int64_t count) {
  with_form(s.form, [&]<TileForm Form>() __attribute__((always_inline)) {
    run_tiles<Isa, Form>(s, x, weights, bias, added, out, buffers, first, count);
  });
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

/// G of `Points` points times the `Taps` elements of `v`, `step` apart: elements of `out`, `out_step` apart.
template <std::int64_t Taps, std::int64_t Points, typename Doubles>
HEDDLE_INLINE void transform_taps(const Doubles* v, std::int64_t step, Doubles* out,
                                  std::int64_t out_step) {
  // A point's row holds its powers, times a factor that B^T leaves out; the last point is at infinity.
  constexpr std::array<double, 5> kPoints{0, 1, -1, Points == 4 ? 0 : 2, -2};
  constexpr std::array<double, 5> kFactors =
      Points == 1   ? std::array<double, 5>{1}
      : Points == 4 ? std::array<double, 5>{1, 0.5, 0.5}
                    : std::array<double, 5>{1.0 / 4, -1.0 / 6, -1.0 / 6, 1.0 / 24, 1.0 / 24};
  for (std::int64_t p = 0; p < std::max<std::int64_t>(1, Points - 1); ++p) {
    const auto at = static_cast<std::size_t>(p);
    Doubles sum = v[(Taps - 1) * step];
    for (std::int64_t tap = Taps - 1; tap-- > 0;) sum = kPoints[at] * sum + v[tap * step];
    out[p * out_step] = kFactors[at] * sum;
  }
  if (Points > 1) out[(Points - 1) * out_step] = v[(Taps - 1) * step];
}

/// As many results as there are lanes at a time: their weights of a channel, in double precision.
template <typename Isa, TileForm Form>
HEDDLE_INLINE void transform_all(const Shape& s, const float* weights, float* transformed) {
  using Doubles = typename Isa::Doubles;
  using Floats = typename Isa::HalfVector;
  constexpr std::int64_t kDown = Form.in_down();
  constexpr std::int64_t kAcross = Form.in_across();
  constexpr std::int64_t kTaps = Form.taps_down * Form.taps_across;
  constexpr std::int64_t kLanes = Isa::kLanes / 2;
  for (std::int64_t row = 0; row < s.widths.panels * s.channels; ++row) {
    const std::int64_t panel = row / s.channels;
    const std::int64_t first = s.widths.first_column(panel);
    const std::int64_t columns = s.widths.vectors_of(panel) * s.widths.lanes;
    const std::int64_t c = row % s.channels;
    for (std::int64_t column = 0; column < columns; column += kLanes) {
      const std::int64_t m = first + column;
      alignas(64) float given[kTaps][kLanes];
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        for (std::int64_t k = 0; k < kTaps; ++k)
          given[k][lane] =
              m + lane < s.results ? weights[((m + lane) * s.channels + c) * kTaps + k] : 0.0f;
      Doubles w[kTaps];
      for (std::int64_t k = 0; k < kTaps; ++k)
        w[k] = __builtin_convertvector(*reinterpret_cast<const Floats*>(given[k]), Doubles);
      Doubles half[kDown * Form.taps_across];
      for (std::int64_t j = 0; j < Form.taps_across; ++j)
        transform_taps<Form.taps_down, kDown>(w + j, Form.taps_across, half + j, Form.taps_across);
      const std::int64_t step = s.channels * columns;  // from a point to the next
      float* to = transformed + first * s.channels * Form.points() + c * columns + column;
      for (std::int64_t i = 0; i < kDown; ++i) {
        Doubles points[kAcross];
        transform_taps<Form.taps_across, kAcross>(half + i * Form.taps_across, 1, points, 1);
        for (std::int64_t j = 0; j < kAcross; ++j)
          *reinterpret_cast<Floats*>(to + (i * kAcross + j) * step) =
              __builtin_convertvector(points[j], Floats);
      }
    }
  }
}

template <typename Isa>
HEDDLE_INLINE void transform_any(const Shape& s, const float* weights, float* transformed) {
  with_form(s.form, [&]<TileForm Form>() __attribute__((always_inline)) {
    transform_all<Isa, Form>(s, weights, transformed);
  });
}

HEDDLE_AVX512 void transform_on_avx512(const Shape& s, const float* weights, float* transformed) {
  transform_any<Avx512>(s, weights, transformed);
}
HEDDLE_AVX2 void transform_on_avx2(const Shape& s, const float* weights, float* transformed) {
  transform_any<Avx2>(s, weights, transformed);
}

}  // namespace

bool has_winograd(const Problem& problem) {
  return kernel_isas().front() != KernelIsa::Any && problem.x[1] % kTiledChannels == 0 &&
         problem.result[1] % kTiledResults == 0;
}

std::int64_t winograd_panels(const Problem& problem, const WinogradKernel& kernel) {
  return Shape(problem, kernel).widths.panels;
}

Ints winograd_weights(const Problem& problem, const WinogradKernel& kernel) {
  const Shape s(problem, kernel);
  return {s.filled, s.form.points(), s.channels};
}

void transform_weights(const Problem& problem, const float* weights, float* transformed,
                       const WinogradKernel& kernel) {
  const Shape s(problem, kernel);
  const auto run = kernel.isa == KernelIsa::Avx512 ? transform_on_avx512 : transform_on_avx2;
  run(s, weights, transformed);
}

std::int64_t winograd_scratch(const Problem& problem, const WinogradKernel& kernel) {
  const Shape s(problem, kernel);
  return (s.form.points() * (s.point_step() + s.sum_step()) + s.channels) * 4;
}

void run_winograd(const Problem& problem, const float* x, const float* transformed,
                  const float* bias, const float* added, std::span<const TailOp> tail, float* out,
                  void* scratch, std::optional<Panels> panels, const WinogradKernel& kernel) {
  const Shape s(problem, kernel, panels);
  const std::int64_t block = s.block();
  Buffers buffers{static_cast<float*>(scratch), nullptr, nullptr};
  buffers.sums = buffers.points + s.form.points() * s.point_step();
  buffers.zeros = buffers.sums + s.form.points() * s.sum_step();
  std::fill_n(buffers.zeros, s.channels, 0.0f);
  for (std::int64_t n = 0; n < s.batch; ++n) {
    const std::int64_t image = n * s.rows * s.columns * s.results;
    const float* from = x + n * s.height * s.width * s.channels;
    std::int64_t complete = 0;
    for (std::int64_t first = 0; first < s.tiles(); first += block) {
      const std::int64_t count = std::min(block, s.tiles() - first);
      const auto run = kernel.isa == KernelIsa::Avx512 ? run_on_avx512 : run_on_avx2;
      run(s, from, transformed, bias, added == nullptr ? nullptr : added + image, out + image,
          buffers, first, count);
      const std::int64_t now = std::min(s.rows, (first + count) / s.tiles_across * s.form.down);
      const std::int64_t end = first + count == s.tiles() ? s.rows : now;
      follow(s, image, complete, end, tail, out);
      complete = end;
    }
  }
}

}  // namespace heddle::jit::onednn
