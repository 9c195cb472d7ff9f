// packed_int8_conv and packed_bf16_conv as nests: what those that copy windows and those that read them in place have in common.
#pragma once

#include <functional>

#include "jit/lower/pack_weights.h"
#include "jit/nests/support.h"

namespace heddle::jit {

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

  explicit PanelConvNest(NestContext& ctx);

  std::size_t spatial() const { return kernel_.size(); }
  const SymExpr& channels() const { return x_sizes_.back(); }
  bool is_of_bytes() const { return element_ == DType::U8; }
  /// Elements of a window.
  SymExpr depth() const;
  /// The 0 of a sum.
  Scalar no_sum();
  Sums add_sums(std::int64_t rows);

  /// Makes each tile of each strip of panels an iteration of the parallel axis. The number of the tile.
  SymExpr split(const SymExpr& tiles);
  /// A loop over the panels of the strip.
  void begin_panels();
  void end_panels() { b_.end_for(); }
  /// Groups that are multiplied at a time.
  std::int64_t most_depth() const;
  /// Of the panel: sums[rows, columns] += a . groups [first, first + count), as many at a time as stay in the first-level cache.
  /// @param accumulate  if not, = in place of +=; of no more groups than that
  void multiply(const Sums& sums, const SymExpr& rows, const TileOperand& a, const SymExpr& first,
                const SymExpr& count, bool accumulate = true);
  /// The result's elements of `sums`, those of a row at index_of(row) and the column.
  void write(const Sums& sums, const SymExpr& rows, const IndexOfRow& index_of);

  NestContext& ctx_;
  NestBuilder& b_;
  const DType element_;                 ///< of x: u8 or bf16
  const DType accumulator_;             ///< i32 or f32
  const std::int64_t group_;            ///< elements that are multiplied at a time
  const std::vector<SymExpr> out_;      ///< [n, out..., columns]
  const std::vector<SymExpr> x_sizes_;  ///< [n, in..., c]
  const AffineOperand x_;
  const AffineOperand panels_;
  const std::vector<std::int64_t> kernel_, strides_, pads_, dilations_;  ///< pads: before x

 private:
  Mask pairs_fit_;
  SymExpr first_panel_, strip_;             ///< of the iteration
  SymExpr panel_, column_begin_, columns_;  ///< of the panel
};

}  // namespace heddle::jit
