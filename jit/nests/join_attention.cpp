// join_attention as a nest: parts of the keys weigh by how much their largest score falls short of the largest of all.
//
//   for p in tiles of rows x tiles of columns (parallel)
//     the largest score of all parts
//     for tile of parts (serial)
//       share = exp(a part's largest - largest), total += share * the part's total
//       for row (serial): sums += shares . the parts' sums
//     result = sums / total, or 0 where total is 0 (nan_rows: where there are no parts)
//
// A tile is one row, whose parts are lanes; but where there is one part, which leaves little to do for a row, it is several, which are.
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

constexpr std::int64_t kTileParts = 64;
constexpr std::int64_t kMostRows = 16;
constexpr std::int64_t kMostJoinedColumns = 128;

class JoinNest {
 public:
  explicit JoinNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        sizes_(ctx.operand_sizes(0)),
        parts_(sizes_[3]),
        x_(*ctx.affine(0)),
        dtype_(accumulator_of(ctx.node().output().dtype)) {
    const SymExpr& columns = sizes_[4];
    tile_columns_ = columns.is_constant() && columns.constant() <= kMostJoinedColumns
                        ? std::max<std::int64_t>(columns.constant(), 1)
                        : kMostJoinedColumns;
  }

  void build() {
    split_parallel();
    const auto local = [&](std::int64_t count) { return b_.add_local(dtype_, count, count); };
    shift_ = local(kMostRows);
    total_ = local(kMostRows);
    shares_ = local(kTileParts);
    sums_ = local(kMostRows * tile_columns_);
    start();
    const SymExpr tile = b_.begin_for(ceildiv(parts_, kTileParts), ForStmt::Kind::Serial);
    first_ = tile * kTileParts;
    count_ = min(kTileParts, parts_ - first_);
    weigh();
    add_up();
    b_.end_for();
    write();
    b_.nest().work = base::product(sizes_) * 2 + base::product(std::span(sizes_).first(4)) * 16;
  }

 private:
  void split_parallel() {
    const SymExpr rows = sizes_[0] * sizes_[1] * sizes_[2];
    const SymExpr is_one = b_.simplify(max(0, 2 - max(1, parts_)));
    const SymExpr tile_rows = b_.simplify(1 + (kMostRows - 1) * is_one);
    const SymExpr extents[] = {ceildiv(rows, tile_rows), ceildiv(sizes_[4], tile_columns_)};
    const SymExpr extent = base::product(extents);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    const Index at = delinearize(p, extents, b_.facts());
    row_begin_ = b_.simplify(at[0] * tile_rows);
    rows_ = b_.simplify(min(tile_rows, rows - row_begin_));
    rows_of_one_ = b_.simplify(rows_ * is_one);
    rows_of_more_ = b_.simplify(rows_ - rows_of_one_);
    column_begin_ = at[1] * tile_columns_;
    columns_ = b_.simplify(min(tile_columns_, sizes_[4] - column_begin_));
  }

  Scalar number(double value) { return b_.constant(dtype_, value); }

  /// The index of a row of the tile, among rows of all heads.
  Index row_index(const SymExpr& row) const {
    return delinearize(row_begin_ + row, std::span(sizes_).first(3), b_.facts());
  }

  /// Of an operand, what a part of a row has.
  Scalar of_part(std::size_t operand, const SymExpr& row, const SymExpr& part) {
    Index index = row_index(row);
    index.push_back(part);
    return b_.convert(ctx_.operand(operand, index), dtype_);
  }

  /// `body` of each row and each of `count` parts from `first` on: what it gives is joined, and `end` gets that of a row.
  template <typename Body, typename End>
  void for_each_part(const SymExpr& first, const SymExpr& count, ir::ReduceOp join, Body&& body,
                     End&& end) {
    const SymExpr one = b_.begin_for(rows_of_one_, ForStmt::Kind::Vector);
    const Scalar start = join == ir::ReduceOp::Max ? lowest(b_, dtype_) : number(0);
    const SymExpr only = b_.begin_for(count, ForStmt::Kind::Serial);
    const Scalar so_far = b_.carry(start);
    const ScalarOp op = join == ir::ReduceOp::Max ? ScalarOp::Max : ScalarOp::Add;
    const Scalar all = b_.set_next(so_far, b_.apply(op, so_far, body(one, first + only, one)));
    b_.end_for();
    end(one, all);
    b_.end_for();
    const SymExpr row = b_.begin_for(rows_of_more_, ForStmt::Kind::Serial);
    const SymExpr part = b_.begin_for(count, ForStmt::Kind::Vector);
    const Scalar each = body(row, first + part, part);
    const Scalar joined = b_.reduce(join, dtype_, {&each, 1})[0];
    b_.end_for();
    end(row, joined);
    b_.end_for();
  }

  void start() {
    const Scalar hidden = lowest(b_, dtype_);
    for_each_part(
        0, parts_, ir::ReduceOp::Max,
        [&](const SymExpr& row, const SymExpr& part, const SymExpr&) {
          return of_part(1, row, part);
        },
        [&](const SymExpr& row, Scalar largest) {
          // Rows that saw nothing: exp(-inf - 0) is 0, where -inf - -inf is NaN.
          const Scalar nothing = b_.apply(ScalarOp::Eq, largest, hidden);
          b_.store(shift_, row, b_.apply(ScalarOp::Select, {nothing, number(0), largest}));
          b_.store(total_, row, number(0));
        });
    const SymExpr lane = b_.begin_for(rows_ * tile_columns_, ForStmt::Kind::Vector);
    b_.store(sums_, lane, number(0));
    b_.end_for();
  }

  /// Shares of the tile's parts, and what they add to the totals. There is one row, or one part.
  void weigh() {
    for_each_part(
        first_, count_, ir::ReduceOp::Sum,
        [&](const SymExpr& row, const SymExpr& part, const SymExpr& place) {
          const Scalar distance =
              b_.apply(ScalarOp::Sub, of_part(1, row, part), b_.load(shift_, row));
          const Scalar share = b_.exp_up_to_zero(distance);
          b_.store(shares_, place, share);
          return b_.apply(ScalarOp::Mul, share, of_part(2, row, part));
        },
        [&](const SymExpr& row, Scalar total) {
          b_.store(total_, row, b_.apply(ScalarOp::Add, b_.load(total_, row), total));
        });
  }

  void add_up() {
    const SymExpr one = b_.begin_for(rows_of_one_, ForStmt::Kind::Serial);
    const Scalar share = b_.load(shares_, one);
    const SymExpr column = b_.begin_for(columns_ * count_, ForStmt::Kind::Vector);
    Index index = row_index(one);
    index.push_back(first_);
    index.push_back(column_begin_ + column);
    b_.store(sums_, one * tile_columns_ + column,
             b_.apply(ScalarOp::Mul, share, b_.convert(ctx_.operand(0, index), dtype_)));
    b_.end_for();
    b_.end_for();
    const SymExpr row = b_.begin_for(rows_of_more_, ForStmt::Kind::Serial);
    index = row_index(row);
    index.push_back(first_);
    index.push_back(column_begin_);
    TileOperand parts{x_.buffer, x_.offset + strided_index(index, x_.strides), x_.strides[3],
                      x_.strides[4]};
    b_.contract({sums_,
                 dtype_,
                 kMostRows,
                 tile_columns_,
                 1,
                 columns_,
                 count_,
                 {shares_, 0, kTileParts, 1},
                 std::move(parts),
                 true});
    b_.end_for();
  }

  void write() {
    const SymExpr row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Scalar total = b_.load(total_, row);
    const Scalar none = ctx_.node().flag("nan_rows") ? compare(b_, ScalarOp::Eq, parts_, 0)
                                                     : b_.apply(ScalarOp::Eq, total, number(0));
    const Scalar share = b_.apply(ScalarOp::Reciprocal, {total});
    const SymExpr column = b_.begin_for(columns_, ForStmt::Kind::Vector);
    const Scalar mean =
        b_.apply(ScalarOp::Mul, b_.load(sums_, row * tile_columns_ + column), share);
    const Scalar value = b_.apply(ScalarOp::Select, {none, number(0), mean});
    Index index = row_index(row);
    index.push_back(column_begin_ + column);
    ctx_.result(0, index, b_.convert(value, ctx_.node().output().dtype));
    b_.end_for();
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> sizes_;  ///< of the sums
  const SymExpr parts_;
  const AffineOperand x_;
  const DType dtype_;
  std::int64_t tile_columns_;
  SymExpr row_begin_, rows_, column_begin_, columns_;
  SymExpr rows_of_one_, rows_of_more_;  ///< of rows with one part, or none; of those with more
  SymExpr first_, count_;               ///< of a tile of parts
  NestBufferId shift_ = 0, total_ = 0, shares_ = 0, sums_ = 0;
};

void build_join_attention(NestContext& ctx) { JoinNest(ctx).build(); }

}  // namespace

const NestRecipe kJoinAttentionRecipe{.name = "join_attention",
                                      .memory_operands = 0b111,
                                      .epilogue = true,
                                      .build = build_join_attention};

}  // namespace heddle::jit
