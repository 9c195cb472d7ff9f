#include "jit/nests/dot_conv.h"

#include <algorithm>
#include <optional>

#include "ir/op.h"
#include "jit/lower/conv_windows.h"
#include "jit/nests/row_conv.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

/// Positions of a tile.
constexpr std::int64_t kDotRows = 64;

class DotConv {
 public:
  explicit DotConv(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        out_(ctx.output_sizes()),
        x_(*ctx.affine(0)),
        w_(*ctx.affine(1)),
        channels_(ctx.operand_sizes(1)[1]),
        columns_(out_.back().constant()),
        window_(channels_last_window(ctx)),
        row_(out_.size() - 3) {}

  void build() {
    const SymExpr& length = out_[row_ + 1];
    const std::int64_t stride = window_.strides[row_];
    const SymExpr& size = window_.input[row_];
    // Windows before `low` and from `high` on reach out of the row.
    const SymExpr low = b_.simplify(min(length, (window_.pads_low[row_] + stride - 1) / stride));
    const SymExpr inside = size + window_.pads_low[row_] - reach();
    const SymExpr high = b_.simplify(max(low, min(length, floordiv(inside, stride) + 1)));
    const SymExpr whole = b_.simplify(high - low);

    std::vector<SymExpr> sizes(out_.begin(), out_.end() - 2);
    tile_rows_ = kDotRows;
    if (whole.is_constant()) {
      const std::int64_t tiles =
          std::max<std::int64_t>(1, (whole.constant() + kDotRows - 1) / kDotRows);
      tile_rows_ = std::max<std::int64_t>(1, (whole.constant() + tiles - 1) / tiles);
    }
    sizes.push_back(b_.simplify(max(1, ceildiv(whole, tile_rows_))));
    const SymExpr extent = base::product(sizes);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    index_ = delinearize(p, sizes, b_.facts());
    const SymExpr tile = index_.back();
    index_.pop_back();
    acc_ = b_.add_local(DType::F32, tile_rows_ * columns_, tile_rows_ * columns_);

    const SymExpr first = low + tile * tile_rows_;
    windows(b_.simplify(first), b_.simplify(min(tile_rows_, high - first)), 0,
            window_.kernel[row_]);
    // The first tile of a row has those that reach out of it as well.
    const SymExpr once = max(0, 1 - tile);
    outside(0, b_.simplify(low * once));
    outside(high, b_.simplify((length - high) * once));
    b_.nest().work = base::product(out_) * base::product(window_.kernel) * channels_ * 2;
  }

 private:
  /// Positions of x from the first one of a window to behind its last.
  SymExpr reach() const { return (window_.kernel[row_] - 1) * window_.dilations[row_] + 1; }

  /// Windows one by one, from those of their taps that lie in x.
  void outside(const SymExpr& first, const SymExpr& count) {
    if (count.is_constant(0)) return;
    const SymExpr at = first + b_.begin_for(count, ForStmt::Kind::Serial);
    const SymExpr tap = window_.first_tap(row_, at);
    windows(at, 1, b_.simplify(tap), b_.simplify(max(0, window_.end_tap(row_, at) - tap)));
    b_.end_for();
  }

  /// `rows` windows from number `first` of the row on: `taps` of their taps, from number `tap` on.
  void windows(const SymExpr& first, const SymExpr& rows, const SymExpr& tap, const SymExpr& taps) {
    const std::int64_t stride = window_.strides[row_], dilation = window_.dilations[row_];
    const SymExpr& along = x_.strides[row_ + 1];
    SymExpr from = x_.offset + x_.strides[0] * index_[0] +
                   (first * stride - window_.pads_low[row_] + tap * dilation) * along;
    SymExpr weights = w_.offset + tap * w_.strides.back();
    std::vector<ContractStmt::Run> runs;
    for (std::size_t d = 0; d < row_; ++d) {
      const TapLoop loop = window_.taps(d, index_[d + 1], true);
      from += loop.position * x_.strides[d + 1];
      weights += loop.tap * w_.strides[d + 2];
      if (loop.extent.is_constant(1)) continue;
      runs.push_back({.count = loop.extent,
                      .a_stride = x_.strides[d + 1] * loop.position_step,
                      .b_stride = w_.strides[d + 2] * loop.tap_step});
    }
    const bool is_joined = dilation == 1 && b_.simplify(along - channels_).is_constant(0) &&
                           b_.simplify(w_.strides.back() - channels_).is_constant(0);
    if (!is_joined || runs.empty())
      runs.push_back({.count = is_joined ? SymExpr(1) : taps,
                      .a_stride = along * dilation,
                      .b_stride = w_.strides.back()});
    b_.contract({.acc = acc_,
                 .dtype = DType::F32,
                 .tile_rows = tile_rows_,
                 .tile_columns = columns_,
                 .rows = rows,
                 .columns = columns_,
                 .depth = is_joined ? taps * channels_ : channels_,
                 .a = {x_.buffer, from, along * stride, 1},
                 .b = {w_.buffer, weights, 1, w_.strides[0]},
                 .runs = std::move(runs)});
    write(first, rows);
  }

  void write(const SymExpr& first, const SymExpr& rows) {
    const bool one = columns_ == 1;
    const SymExpr row = b_.begin_for(rows, one ? ForStmt::Kind::Vector : ForStmt::Kind::Serial);
    const SymExpr column = one ? SymExpr(0) : b_.begin_for(columns_, ForStmt::Kind::Vector);
    Scalar sum = b_.load(acc_, row * columns_ + column);
    const bool biased = ctx_.node().inputs().size() > 2 && ctx_.node().input(2);
    if (biased) sum = b_.apply(ir::ScalarOp::Add, {sum, ctx_.operand(2, Index{column})});
    Index at = index_;
    at.push_back(first + row);
    at.push_back(column);
    ctx_.result(0, at, sum);
    b_.end_for();
    if (!one) b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> out_;  ///< [N, out..., M]
  const AffineOperand x_, w_;
  const SymExpr channels_;
  const std::int64_t columns_;
  WindowShape window_;
  const std::size_t row_;  ///< the spatial dimension that rows lie along
  std::int64_t tile_rows_ = 0;
  NestBufferId acc_ = 0;
  Index index_;
};

}  // namespace

namespace {

/// Channels of the result that leave most of a vector of them empty.
constexpr std::int64_t kFewColumns = 4;
/// Terms that lie side by side, of several columns: fewer leave too many lanes empty.
constexpr std::int64_t kLeastPiece = 12;
constexpr std::int64_t kLeastPieceOfOne = 8;
/// Columns that leave half of a vector of them empty, and what makes joining the lanes of their sums a small part of the work.
constexpr std::int64_t kHalfOfColumns = 8;
constexpr std::int64_t kLeastTermsOfHalf = 240;
constexpr std::int64_t kLeastPieceOfHalf = 24;
/// The same with narrow vectors: taps that lie apart.
constexpr std::int64_t kLeastNarrowRows = 5;
constexpr std::int64_t kLeastNarrowPiece = 40;
/// Many taps along a row, as filters of sound have, for columns of which a quarter more fill vectors of this many.
constexpr std::int64_t kLongPiece = 64;
constexpr std::int64_t kLongTaps = 32;
constexpr std::int64_t kMostLongColumns = 48;
constexpr std::int64_t kWideLanes = 16;
/// Terms of a window of one element: of few columns, and of those that leave some of a wide vector empty.
constexpr std::int64_t kLeastTermsOfFew = 32;
constexpr std::int64_t kLeastTermsOfMany = 128;

/// Whether vectors of columns would be so empty that those of terms take less time.
bool suits(std::int64_t columns, std::int64_t piece, std::int64_t taps_of_row, std::int64_t rows,
           bool is_wide) {
  if (columns <= kFewColumns)
    return piece >= (columns == 1 || !is_wide ? kLeastPieceOfOne : kLeastPiece);
  if (!is_wide)
    return columns <= kHalfOfColumns && rows >= kLeastNarrowRows && piece >= kLeastNarrowPiece;
  if (columns <= kHalfOfColumns)
    return piece * rows >= kLeastTermsOfHalf && piece >= kLeastPieceOfHalf;
  const std::int64_t filled = (columns + kWideLanes - 1) / kWideLanes * kWideLanes;
  return columns > kWideLanes && columns <= kMostLongColumns && filled * 4 >= columns * 5 &&
         piece >= kLongPiece && taps_of_row >= kLongTaps;
}

}  // namespace

bool pays_as_dot_conv(std::int64_t columns, std::int64_t terms, std::int64_t vector_bytes) {
  const std::int64_t few = vector_bytes > kNarrowBytes ? kHalfOfColumns : kFewColumns;
  if (columns > 1 && columns <= few) return terms >= kLeastTermsOfFew;
  return columns > kHalfOfColumns && columns < kWideLanes && terms >= kLeastTermsOfMany;
}

bool may_be_dot_conv(const ir::Node& conv, std::int64_t vector_bytes) {
  if (conv.op_name() != "conv" || !conv.flag("channels_last") || conv.integer("groups") != 1)
    return false;
  for (const ir::Value& input : conv.inputs())
    if (input && input.meta().dtype != DType::F32) return false;
  const ir::Dims& weights = conv.input(1).meta().sizes;
  if (!std::ranges::all_of(weights, [](const SymExpr& size) { return size.is_constant(); }))
    return false;
  const std::int64_t columns = weights[0].constant(), channels = weights[1].constant();
  const std::int64_t along = weights.back().constant();
  const std::int64_t taps = base::product(std::span(weights).subspan(2)).constant();
  if (columns == 0 || channels == 0 || taps == 0) return false;
  if (taps == 1) return pays_as_dot_conv(columns, channels, vector_bytes);
  const std::int64_t joined = conv.ints("dilations").back() == 1 ? along : 1;
  return suits(columns, channels * joined, along, taps / joined, vector_bytes > kNarrowBytes);
}

bool is_dot_conv(const ir::Node& conv) {
  if (conv.op_name() != "conv") return false;
  const ir::Node& weights = *conv.input(1).node;
  if (weights.op_name() != "permute" || weights.input(0).node->op_name() != "clone") return false;
  return weights.ints("perm") == channels_to_front(weights.ints("perm").size()) &&
         (may_be_dot_conv(conv, kNarrowBytes) || may_be_dot_conv(conv, kWideBytes));
}

bool reads_terms_side_by_side(NestContext& ctx) {
  if (!is_dot_conv(ctx.node())) return false;
  const std::optional<AffineOperand> x = ctx.affine(0), w = ctx.affine(1);
  // One channel has no neighbours.
  return x && w &&
         (ctx.node().input(1).meta().sizes[1].is_constant(1) ||
          (x->strides.back().is_constant(1) && w->strides[1].is_constant(1)));
}

void build_dot_conv(NestContext& ctx) { DotConv(ctx).build(); }

}  // namespace heddle::jit
