// packed_conv as a nest, for the CPU: runs of windows that lie along the last spatial dimension are the rows of a tile, which are
// read where x has them.
//
//   for p in rows of the result x groups x panels x tiles of a row (parallel; panels innermost where all of them stay in a cache)
//     acc[rows, columns] = 0
//     for taps but those of the last dimension (serial): for parts of the last dimension's taps and channels (serial):
//       acc[rows, columns] += x[windows of the tile, part] . panel[part, columns]
//     for row in rows: for column in columns (vector): result(row, column, acc[row, column])
//
// All taps of the last dimension are one piece of x where they lie behind each other with all channels; else each is one.
#include <algorithm>

#include "jit/lower/index.h"
#include "jit/lower/pack_weights.h"
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

/// Rows of a tile, at most, and what they are a multiple of: the rows of a block of sums in 16 registers.
constexpr std::int64_t kWindowRows = 30;
constexpr std::int64_t kRowsOfBlock = 6;
/// Panels of so many bytes stay in a second-level cache while all tiles of rows pass over them.
constexpr std::int64_t kResidentPanelBytes = 384 * 1024;

class PackedConvNest {
 public:
  explicit PackedConvNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        out_(ctx.output_sizes()),
        x_(*ctx.affine(0)),
        panels_(*ctx.affine(1)),
        panel_sizes_(ctx.operand_sizes(1)),
        kernel_(ctx.node().ints("kernel")),
        strides_(ctx.node().ints("strides")),
        dilations_(ctx.node().ints("dilations")),
        last_(kernel_.size() - 1) {}

  void build() {
    place();
    // Panels of a width that is not known have no more columns than those of packed_matmul.
    const std::int64_t width = panel_sizes_[3].as_constant().value_or(kPanelColumns);
    acc_ = b_.add_local(DType::F32, tile_rows_ * width, tile_rows_ * width);
    clear(width);
    add_taps(width);
    write(width);
    b_.nest().work = base::product(out_) * panel_sizes_[2] * 2;
  }

 private:
  /// Where iteration p begins: position of its first row, group and panel.
  void place() {
    const SymExpr length = out_[last_ + 1];
    tile_rows_ = kWindowRows;
    if (length.is_constant()) {
      const std::int64_t tiles =
          std::max<std::int64_t>(1, (length.constant() + kWindowRows - 1) / kWindowRows);
      const std::int64_t rows = (length.constant() + tiles - 1) / tiles;
      tile_rows_ =
          std::max<std::int64_t>(1, (rows + kRowsOfBlock - 1) / kRowsOfBlock) * kRowsOfBlock;
    }
    const SymExpr tiles = ceildiv(length, tile_rows_);
    std::vector<SymExpr> rows(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(last_) + 1);
    const SymExpr panels = panel_sizes_[0] * panel_sizes_[1];
    const SymExpr bytes = base::product(panel_sizes_) * static_cast<std::int64_t>(sizeof(float));
    // Panels that stay in the second-level cache, all of them, take turns at each tile: x comes from further away once.
    const bool resident = bytes.is_constant() && bytes.constant() <= kResidentPanelBytes;
    std::vector<SymExpr> sizes = rows;
    sizes.push_back(tiles);
    sizes.insert(resident ? sizes.end() : sizes.begin(), panels);
    const SymExpr extent = base::product(sizes);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    Index at = delinearize(p, sizes, b_.facts());
    const SymExpr panel = resident ? at.back() : at.front();
    at.erase(resident ? at.end() - 1 : at.begin());
    row_begin_ = at.back() * tile_rows_;
    at.pop_back();
    position_ = std::move(at);
    group_ = b_.simplify(floordiv(panel, panel_sizes_[1]));
    panel_ = b_.simplify(mod(panel, panel_sizes_[1]));
    rows_ = b_.simplify(min(tile_rows_, length - row_begin_));
    const SymExpr columns = b_.simplify(floordiv(out_.back(), panel_sizes_[0]));
    column_begin_ = panel_ * panel_sizes_[3];
    columns_ = b_.simplify(min(panel_sizes_[3], columns - column_begin_));
    first_column_ = group_ * columns + column_begin_;
  }

  void clear(std::int64_t width) {
    const Symbol k = b_.begin_for(rows_ * width, ForStmt::Kind::Vector);
    b_.store(acc_, k, zero(b_, DType::F32));
    b_.end_for();
  }

  /// Elements that lie behind each other in x, and how many such pieces a row of taps has.
  void add_taps(std::int64_t width) {
    const SymExpr channels = b_.simplify(floordiv(ctx_.operand_sizes(0).back(), panel_sizes_[0]));
    const bool one_piece =
        kernel_[last_] == 1 ||
        (dilations_[last_] == 1 && panel_sizes_[0].is_constant(1) &&
         b_.simplify(x_.strides[last_ + 1] - ctx_.operand_sizes(0).back()).is_constant(0));
    SymExpr from = x_.offset + x_.strides[0] * position_[0] + x_.strides.back() * group_ * channels;
    from += row_begin_ * strides_[last_] * x_.strides[last_ + 1];
    SymExpr tap = 0;
    for (std::size_t d = 0; d <= last_; ++d) {
      const bool joined = d == last_ && one_piece;
      const SymExpr t = b_.begin_for(joined ? 1 : kernel_[d], ForStmt::Kind::Serial);
      const SymExpr first = d == last_ ? SymExpr(0) : position_[d + 1] * strides_[d];
      from += (first + t * dilations_[d]) * x_.strides[d + 1];
      tap = tap * kernel_[d] + t;
    }
    const SymExpr depth = b_.simplify(channels * (one_piece ? kernel_[last_] : 1));
    // One channel has no step to the next, but the positions behind each other have.
    const SymExpr step = one_piece && kernel_[last_] > 1 ? SymExpr(1) : x_.strides.back();
    add_piece(from, step, tap * channels, depth, width);
    for (std::size_t d = 0; d <= last_; ++d) b_.end_for();
  }

  /// Adds `depth` elements of each window, `step` apart, in parts that stay in the first-level cache.
  void add_piece(const SymExpr& from, const SymExpr& step, const SymExpr& row, const SymExpr& depth,
                 std::int64_t width) {
    const SymExpr first = panels_.offset + panels_.strides[0] * group_ +
                          panels_.strides[1] * panel_ + panels_.strides[2] * row;
    const SymExpr part =
        SymExpr(b_.begin_for(ceildiv(depth, kPanelDepth), ForStmt::Kind::Serial)) * kPanelDepth;
    b_.contract(
        {.acc = acc_,
         .dtype = DType::F32,
         .tile_rows = tile_rows_,
         .tile_columns = width,
         .rows = rows_,
         .columns = columns_,
         .depth = b_.simplify(min(kPanelDepth, depth - part)),
         .a = {x_.buffer, from + part * step, x_.strides[last_ + 1] * strides_[last_], step},
         .b = {panels_.buffer, first + part * panels_.strides[2], panels_.strides[2],
               panels_.strides[3]},
         .accumulate = true});
    b_.end_for();
  }

  void write(std::int64_t width) {
    const Symbol row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Symbol column = b_.begin_for(columns_, ForStmt::Kind::Vector);
    const Scalar sum = b_.load(acc_, SymExpr(row) * width + SymExpr(column));
    Index index = position_;
    index.push_back(row_begin_ + SymExpr(row));
    index.push_back(first_column_ + SymExpr(column));
    ctx_.result(0, index, sum);
    b_.end_for();
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> out_;  ///< [n, out..., columns]
  const AffineOperand x_;
  const AffineOperand panels_;
  const std::vector<SymExpr> panel_sizes_;  ///< [g, p, q, w]
  const std::vector<std::int64_t> kernel_, strides_, dilations_;
  const std::size_t last_;  ///< spatial dimension
  NestBufferId acc_ = 0;
  std::int64_t tile_rows_ = 0;
  Index position_;  ///< image and spatial dimensions but the last
  SymExpr group_, panel_, row_begin_, rows_, column_begin_, columns_, first_column_;
};

void build_packed_conv(NestContext& ctx) { PackedConvNest(ctx).build(); }

}  // namespace

const NestRecipe kPackedConvRecipe{
    .name = "packed_conv", .memory_operands = 0b11, .epilogue = true, .build = build_packed_conv};

}  // namespace heddle::jit
