// packed_int8_conv and packed_bf16_conv as nests: what those that copy windows and those that read them in place have in common.
#pragma once

#include <functional>

#include "jit/lower/pack_weights.h"
#include "jit/nests/support.h"

namespace heddle::jit {

/// The least multiple of `to` that is no less.
inline std::int64_t up_to(std::int64_t value, std::int64_t to) {
  return (value + to - 1) / to * to;
}

/// Whether the windows of the node are read in place: x's sizes are known, each tap begins a group of a panel, and tiles of
/// rows whose windows lie inside of x are most of the work.
bool reads_windows_in_place(NestContext& ctx);

/// Elements of the result whose windows begin equally far apart, and lie inside of x or outside of it with the same taps, are the
/// rows of a tile: a run along the last dimension or, for the columns of an image at its edges, along the one before.
///
///   for p in column strips x images x tiles (parallel; tiles innermost: the panels of a strip stay in the second-level cache)
///     position, step, rows = where tile p begins, along which dimension its rows go, how many they are
///     for panel in strip:
///       edge[columns] = what taps outside of x add, zero . panel: the same for all rows
///       for row in rows: acc[row, columns] = edge[columns]
///       for taps inside of x but those of the last dimension:
///         acc[rows, columns] += x(position + tap) . panel, the last dimension's taps in one piece where they lie so
///       for row in rows: for column in columns (vector): result(position + row * step, column, acc[row, column])
///
/// An image of 5 x 6 and a kernel of 3 x 3 with padding of 1 all around, the tiles by letters:
///
///   i a a a a k
///   j b b b b l        a, e: without the upper and lower taps; j, l: without the left and right ones;
///   j c c c c l        i, k, m, n: corners, tiles of one row
///   j d d d d l
///   m e e e e n
void build_panel_conv_in_place(NestContext& ctx);

/// Whether windows are read from a slab: few channels, so that the taps along the last dimension are a piece of a few whole groups, as those of a
/// first layer that byte_products.h made, or one of several groups of channels; more channels where sizes are not known.
bool reads_windows_from_slab(NestContext& ctx);

/// What the windows of a tile of a row read, put side by side once, zero points where it lies outside of x:
///
///   for p in column strips x rows of the result x tiles of a row (parallel)
///     for taps but those of the last dimension: slab[tap, :] = that row of x, from the tile's first window on
///     for panel in strip:
///       acc[rows, columns] = sum over the slab's rows of slab[tap, row * stride ...] . panel
///       for row in rows: for column in columns (vector): result(position + row, column, acc[row, column])
///
/// Windows of neighbours overlap: of 7 x 7 taps that move by 2 each byte would be copied a dozen times.
void build_panel_conv_slab(NestContext& ctx);

/// The attribute `align` of `conv`, whose kernel's sizes and channels are known, where matrix registers multiply its windows as they lie in
/// a patch: the elements of a row of a register. 1 where they do not: of more than two spatial dimensions, of more channels than
/// fit, and of taps whose elements are no whole registers and may be no numbers, or lie apart.
/// @param joined  groups that are multiplied as one
std::int64_t patch_alignment(const ir::Node& conv, std::int64_t joined, DType dtype);

/// Columns of a panel of such a convolution, of so many columns of a group: what is read at a time lies in one piece.
std::int64_t patch_panel_columns(std::int64_t columns);

/// Whether the node was made to be one with patch_alignment().
bool reads_windows_from_patch(NestContext& ctx);

/// Windows of a convolution with `align`, by matrix registers. What the windows of a tile read, its patch, is copied with its padding, so that
/// neighbouring windows begin equally far apart, those of several rows of the result, too:
///
///   for p in column strips x images x tiles of some rows of the result by some positions (parallel; tiles innermost)
///     for row in rows that the tile's windows read: patch[row, :] = that row of x, zero points where it lies outside
///     for panel in strip:
///       acc[sums, columns] = sum over taps down a column of patch[tap, sum * stride ...] . panel
///       for row in rows of the tile: for position in positions (serial):
///         result(row, position, acc[row * pitch + position, columns])
///
/// Between rows lie sums of windows that reach from one row of the patch into the next, which nothing reads: of 3 x 3 taps two for
/// each row. Rows that move by more than one, or whose taps lie apart, are copied for each tap, so that these are equally far
/// apart.
void build_panel_conv_patch(NestContext& ctx);

class PanelConvNest {
 protected:
  /// Sums of a tile: a local buffer of rows x kTileColumns.
  struct Sums {
    NestBufferId buffer;
    std::int64_t rows;
  };
  using IndexOfRow = std::function<Index(const SymExpr& row)>;

  static constexpr std::int64_t kTileRows = 32;
  static constexpr std::int64_t kTileColumns = kPanelColumns;
  /// Panels that share the windows of a tile.
  static constexpr std::int64_t kStripPanels = 2;

  /// @param tile_panels  panels whose columns are those of a tile
  explicit PanelConvNest(NestContext& ctx, std::int64_t tile_panels = 1);

  std::size_t spatial() const { return kernel_.size(); }
  /// Of x, that a window reads: those of its group.
  const SymExpr& channels() const { return channels_; }
  /// Whether what a window reads of neighbouring positions lies side by side.
  bool are_positions_joined() const { return groups_ == 1; }
  /// Where the channels of the iteration's group begin.
  SymExpr first_channel() const { return group_number_ * channels_; }
  bool is_of_bytes() const { return element_ == DType::U8; }
  /// Elements of a window, and of its taps along the last dimension with what `align` puts behind them.
  SymExpr depth() const;
  SymExpr run() const;
  /// The 0 of a sum.
  Scalar no_sum();
  Sums add_sums(std::int64_t rows);

  /// Makes each tile of each strip of panels an iteration of the parallel axis: of several groups, the panels of each are one. The
  /// number of the tile.
  /// @param strip_panels  of a strip of one group
  SymExpr split(const SymExpr& tiles, std::int64_t strip_panels = kStripPanels);
  /// A loop over the panels of the strip, as many at a time as are a tile.
  void begin_panels();
  void end_panels() { b_.end_for(); }
  /// Groups that are multiplied at a time.
  std::int64_t most_depth() const;
  /// Of the panel: sums[rows, columns] += a . groups [first, first + count), as many at a time as stay in the first-level cache.
  /// @param accumulate  if not, = in place of +=; of no more groups than that
  void multiply(const Sums& sums, const SymExpr& rows, const TileOperand& a, const SymExpr& first,
                const SymExpr& count, bool accumulate = true);
  /// Whether taps may be multiplied as runs of one contraction, `groups` each.
  bool may_run(const SymExpr& groups) const;
  /// sums[rows, columns] = the sum over `runs`, by which a moves elements and b groups, of a . groups [first, first + count)
  void multiply_runs(const Sums& sums, const SymExpr& rows, const TileOperand& a,
                     const SymExpr& first, const SymExpr& count,
                     std::vector<ContractStmt::Run> runs);
  /// The result's elements of `sums`, those of a row at index_of(row) and the column.
  /// @param more   sums of one row, which are added to those of each
  /// @param first  row of `sums` that they begin with
  void write(const Sums& sums, const SymExpr& rows, const IndexOfRow& index_of,
             const Sums* more = nullptr, const SymExpr& first = 0);

  NestContext& ctx_;
  NestBuilder& b_;
  const DType element_;                 ///< of x: u8 or bf16
  const DType accumulator_;             ///< i32 or f32
  const std::int64_t group_;            ///< elements that are multiplied at a time
  const std::int64_t groups_;           ///< of channels
  const std::vector<SymExpr> out_;      ///< [n, out..., columns]
  const std::vector<SymExpr> x_sizes_;  ///< [n, in..., c]
  const AffineOperand x_;
  const AffineOperand panels_;
  const std::vector<std::int64_t> kernel_, strides_, pads_, dilations_;  ///< pads: before x

 private:
  Mask pairs_fit_;
  const SymExpr channels_;       ///< of a group
  const SymExpr group_columns_;  ///< columns of a group
  const SymExpr panel_columns_;  ///< kTileColumns at most, of all panels of a tile
  const std::int64_t tile_panels_;
  SymExpr group_number_;         ///< of the iteration's group of channels
  SymExpr first_panel_, strip_;  ///< of the iteration
  SymExpr panel_;
  SymExpr column_begin_, columns_;  ///< of the panel, and of the group
};

}  // namespace heddle::jit
