// cumsum as a nest: a running sum carried along the axis, many columns side by side where the axis is not
// the last one.
//
//   for p in outer x blocks of inner (parallel)
//     for column of the block (vector; absent where inner is 1)
//       for k along the axis (serial): carry the sum, result(p, k, column)
//
// Where a row has many columns, the other way round, the sums in a buffer:
//
//     for two of the axis (serial): for column of the block (vector): sums[column] += each x, result(p, k, column)
//
// On CUDA a long row that is not reversed is a loop that the threads of a block share (ForStmt::Kind::Scan):
//
//   for p in rows (parallel)
//     for k along the axis (scan): carry the sum, result(p, k)
//
// Columns that lie side by side are those of all of outer, in steps of 8 elements, and along the last axis a block of threads adds up each row,
// or several short ones: runs of 8 elements one after the other, then what lies before each of them, by doubling (Hillis and
// Steele, "Data parallel algorithms", 1986).
//
//   for p in blocks of rows (parallel)
//     for tile of a long row (serial): carry the sum of those before
//       for element (vector): elements[element] = x, in the order of memory
//       for run (vector): for element of the run (serial): elements[element] = sum so far; totals[run] = sum
//       for distance 1, 2, 4, …: for run (vector): totals[run] += totals[run - distance]
//       for element (vector): result = sum before the tile + totals[run before] + elements[element]
#include <algorithm>
#include <array>
#include <vector>

#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

constexpr std::int64_t kScanBlock = 64;
/// Columns whose sums are kept beside each other where there are many: several cache lines of each row, and tiles for threads.
constexpr std::int64_t kScanRow = 512;
/// Rows of many columns that are added up before the sums are stored.
constexpr std::int64_t kRowsAtOnce = 2;
/// Elements of a column that a thread of CUDA reads before it stores the sums: it waits for memory once.
constexpr std::int64_t kAtOnce = 8;

std::size_t axis_of(NestContext& ctx) {
  const std::int64_t axis = ctx.node().integer("axis");
  const auto rank = static_cast<std::int64_t>(ctx.output_sizes().size());
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

/// Sums along columns, each in one go.
class ScanNest {
 public:
  explicit ScanNest(NestContext& ctx)
      : ctx_(ctx), b_(ctx.builder()), sizes_(ctx.output_sizes()), axis_(axis_of(ctx)) {}

  void build() {
    const std::span<const SymExpr> sizes(sizes_);
    const auto outer = sizes.first(axis_);
    const auto inner = sizes.subspan(axis_ + 1);
    if (ctx_.options().target == LowerOptions::Target::Cuda) return side_by_side(outer, inner);
    const SymExpr columns = base::product(inner);
    if (columns.is_constant() && columns.constant() > kScanBlock) return row_by_row(outer, inner);
    const SymExpr blocks = ceildiv(columns, kScanBlock);
    const SymExpr extent = base::product(outer) * blocks;
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    const SymExpr row = b_.simplify(floordiv(p, blocks));
    const SymExpr begin = b_.simplify(mod(p, blocks)) * kScanBlock;
    outer_ = delinearize(row, outer, b_.facts());
    if (columns.is_constant(1)) {
      inner_.assign(inner.size(), SymExpr(0));
      scan();
      return;
    }
    const SymExpr count = min(kScanBlock, columns - begin);
    const Symbol column = b_.begin_for(count, ForStmt::Kind::Vector);
    inner_ = delinearize(begin + SymExpr(column), inner, b_.facts());
    scan();
    b_.end_for();
  }

 private:
  /// Columns of all of `outer`, a block of them a parallel iteration.
  void side_by_side(std::span<const SymExpr> outer, std::span<const SymExpr> inner) {
    ir::Dims sizes(outer.begin(), outer.end());
    sizes.insert(sizes.end(), inner.begin(), inner.end());
    const SymExpr columns = base::product(sizes);
    const SymExpr extent = ceildiv(columns, kScanBlock);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    const SymExpr begin = SymExpr(p) * kScanBlock;
    const Symbol column = b_.begin_for(min(kScanBlock, columns - begin), ForStmt::Kind::Vector);
    const Index index = delinearize(begin + column, sizes, b_.facts());
    const auto split = index.begin() + static_cast<std::ptrdiff_t>(outer.size());
    outer_.assign(index.begin(), split);
    inner_.assign(split, index.end());
    scan();
    b_.end_for();
  }

  /// Many columns, a row of all of them after the other: memory is read as it lies, and sums stay in the first-level cache.
  void row_by_row(std::span<const SymExpr> outer, std::span<const SymExpr> inner) {
    const SymExpr columns = base::product(inner);
    const SymExpr blocks = ceildiv(columns, kScanRow);
    const SymExpr extent = base::product(outer) * blocks;
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    outer_ = delinearize(b_.simplify(floordiv(p, blocks)), outer, b_.facts());
    const SymExpr begin = b_.simplify(mod(p, blocks)) * kScanRow;
    const SymExpr count = b_.simplify(min(kScanRow, columns - begin));
    const DType accumulator = accumulator_of(ctx_.node().output().dtype);
    const NestBufferId sums = b_.add_local(accumulator, kScanRow, kScanRow);
    const Symbol first = b_.begin_for(count, ForStmt::Kind::Vector);
    b_.store(sums, first, zero(b_, accumulator));
    b_.end_for();
    const SymExpr steps = b_.simplify(floordiv(sizes_[axis_], kRowsAtOnce));
    const SymExpr rest = b_.simplify(sizes_[axis_] - steps * kRowsAtOnce);
    if (!steps.is_constant(0)) add_rows(sums, begin, count, 0, steps, kRowsAtOnce);
    if (!rest.is_constant(0)) add_rows(sums, begin, count, steps * kRowsAtOnce, rest, 1);
  }

  /// Rows from the `first`-th on, in steps of `at_once`: sums are loaded and stored once for as many.
  void add_rows(NestBufferId sums, const SymExpr& begin, const SymExpr& count, const SymExpr& first,
                const SymExpr& steps, std::int64_t at_once) {
    const Symbol step = b_.begin_for(steps, ForStmt::Kind::Serial);
    const Symbol column = b_.begin_for(count, ForStmt::Kind::Vector);
    inner_ = delinearize(begin + SymExpr(column), std::span(sizes_).subspan(axis_ + 1), b_.facts());
    b_.store(sums, column, add_up(b_.load(sums, column), first + SymExpr(step) * at_once, at_once));
    b_.end_for();
    b_.end_for();
  }

  /// Where the sum's element number `element` lies.
  Index index_at(const SymExpr& element) const {
    Index index = outer_;
    index.push_back(ctx_.node().flag("reverse") ? sizes_[axis_] - 1 - element : element);
    index.insert(index.end(), inner_.begin(), inner_.end());
    return index;
  }

  void scan() {
    const DType accumulator = accumulator_of(ctx_.node().output().dtype);
    const SymExpr length = sizes_[axis_];
    const bool on_cuda = ctx_.options().target == LowerOptions::Target::Cuda;
    const std::int64_t at_once = on_cuda ? kAtOnce : 1;
    const SymExpr steps = b_.simplify(floordiv(length, at_once));
    Scalar sum = zero(b_, accumulator);
    if (!steps.is_constant(0)) sum = scan_from(sum, 0, steps, at_once);
    const SymExpr rest = b_.simplify(length - steps * at_once);
    if (!rest.is_constant(0)) scan_from(sum, steps * at_once, rest, 1);
  }

  /// Results of `count` elements from the `first`-th on. @return `before` and all of them.
  Scalar add_up(Scalar before, const SymExpr& first, std::int64_t count) {
    std::vector<Index> places;
    std::vector<Scalar> values;
    for (std::int64_t k = 0; k < count; ++k) {
      const Index& index = places.emplace_back(index_at(first + k));
      values.push_back(b_.convert(ctx_.operand(0, index), before.dtype));
    }
    for (std::size_t k = 0; k < values.size(); ++k) {
      const Scalar sum = b_.apply(ScalarOp::Add, {before, values[k]});
      const Scalar result = ctx_.node().flag("exclusive") ? before : sum;
      ctx_.result(0, places[k], b_.convert(result, ctx_.node().output().dtype));
      before = sum;
    }
    return before;
  }

  /// Elements from the `first`-th on, in steps of `at_once`. @return the sum of all up to there.
  Scalar scan_from(Scalar start, const SymExpr& first, const SymExpr& steps, std::int64_t at_once) {
    const Symbol step = b_.begin_for(steps, ForStmt::Kind::Serial);
    const Scalar carried = b_.carry(start);
    const Scalar sum = add_up(carried, first + SymExpr(step) * at_once, at_once);
    const Scalar last = b_.set_next(carried, sum);
    b_.end_for();
    return last;
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> sizes_;
  const std::size_t axis_;
  Index outer_, inner_;
};

/// Sums along a long row, which a block's threads share.
void build_shared_row(NestContext& ctx) {
  NestBuilder& b = ctx.builder();
  const std::vector<SymExpr> sizes = ctx.output_sizes();
  const std::size_t axis = axis_of(ctx);
  const auto outer = std::span<const SymExpr>(sizes).first(axis);
  const DType dtype = ctx.node().output().dtype;
  const SymExpr rows = base::product(outer);
  const Symbol p = b.new_axis(rows);
  b.set_parallel(p, rows);
  Index index = delinearize(p, outer, b.facts());
  const Scalar start = zero(b, accumulator_of(dtype));
  const Symbol k = b.begin_for(sizes[axis], ForStmt::Kind::Scan);
  index.push_back(k);
  index.insert(index.end(), sizes.size() - index.size(), SymExpr(0));
  const Scalar before = b.carry(start);
  const Scalar sum =
      b.apply(ScalarOp::Add, before, b.convert(ctx.operand(0, index), accumulator_of(dtype)));
  ctx.result(0, index, b.convert(ctx.node().flag("exclusive") ? before : sum, dtype));
  b.set_next(before, sum);
  b.end_for();
}

/// Elements from which on a row has threads enough.
constexpr std::int64_t kSharedRow = 512;

/// Sums along rows, each by a block of threads.
class RowScan {
 public:
  explicit RowScan(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        sizes_(ctx.output_sizes()),
        axis_(axis_of(ctx)),
        length_(sizes_[axis_]),
        accumulator_(accumulator_of(ctx.node().output().dtype)) {
    const std::int64_t known = length_.is_constant() ? length_.constant() : kRuns * kRun + 1;
    in_tiles_ = known > kRuns * kRun;
    run_ = std::clamp(known, std::int64_t{1}, kRun);
    runs_ = in_tiles_ ? kRuns : std::max<std::int64_t>(1, (known + run_ - 1) / run_);
    rows_ = kRuns / runs_;
    const std::int64_t last = rows_ * runs_ * run_ - 1;
    elements_ = b_.add_local(accumulator_, place(last) + 1, place(last).constant() + 1);
    for (NestBufferId& totals : totals_)
      totals = b_.add_local(accumulator_, rows_ * runs_, rows_ * runs_);
  }

  void build() {
    SymExpr all = 1;
    for (const SymExpr& size : std::span<const SymExpr>(sizes_).first(axis_)) all *= size;
    const SymExpr blocks = ceildiv(all, rows_);
    const Symbol p = b_.new_axis(blocks);
    b_.set_parallel(p, blocks);
    row_ = SymExpr(p) * rows_;
    rows_here_ = b_.simplify(min(rows_, all - row_));
    if (!in_tiles_) {
      tile(0, length_, zero(b_, accumulator_));
      return;
    }
    constexpr std::int64_t kTile = kRuns * kRun;
    const Scalar start = zero(b_, accumulator_);
    const Symbol number = b_.begin_for(ceildiv(length_, kTile), ForStmt::Kind::Serial);
    const Scalar before = b_.carry(start);
    const SymExpr begin = SymExpr(number) * kTile;
    const NestBufferId totals = tile(begin, b_.simplify(min(kTile, length_ - begin)), before);
    b_.set_next(before, b_.apply(ScalarOp::Add, before, b_.load(totals, kRuns - 1)));
    b_.end_for();
  }

 private:
  /// Elements that one thread adds up, and the most such runs of a tile: as many as a block has threads.
  static constexpr std::int64_t kRun = 8;
  static constexpr std::int64_t kRuns = 256;
  /// A gap after as many elements keeps those that threads touch together in banks of their own.
  static constexpr std::int64_t kBanks = 32;

  /// Where element `q` lies, counted through all runs of a tile.
  static SymExpr place(const SymExpr& q) { return q + floordiv(q, kBanks); }

  /// `count` elements of each row from the `begin`-th on, that `before` is added to. @return the sums of runs and all before.
  NestBufferId tile(const SymExpr& begin, const SymExpr& count, Scalar before) {
    each_element(begin, count, [&](const Index& index, const SymExpr& q) {
      b_.store(elements_, place(q), b_.convert(ctx_.operand(0, index), accumulator_));
    });
    add_runs(count);
    const NestBufferId totals = add_totals();
    each_element(begin, count, [&](const Index& index, const SymExpr& q) {
      Scalar sum = before;
      if (runs_ > 1) {
        const SymExpr run = b_.simplify(floordiv(q, run_));
        sum = b_.apply(ScalarOp::Add, sum, total_before(totals, run, 1));
      }
      sum = b_.apply(ScalarOp::Add, sum, b_.load(elements_, place(q)));
      ctx_.result(0, index, b_.convert(sum, ctx_.node().output().dtype));
    });
    return totals;
  }

  /// Goes over a tile's elements as they lie in memory.
  template <typename Body>
  void each_element(const SymExpr& begin, const SymExpr& count, const Body& body) {
    const std::span<const SymExpr> sizes(sizes_);
    const Symbol e = b_.begin_for(b_.simplify(rows_here_ * count), ForStmt::Kind::Vector);
    // Of a reversed row memory begins with the tile's last element.
    const bool reverse = ctx_.node().flag("reverse");
    SymExpr row = 0, at = e;
    Index index;
    if (rows_ == 1) {
      index = delinearize(row_, sizes.first(axis_), b_.facts());
      index.push_back(b_.simplify(reverse ? length_ - begin - count + at : begin + at));
      index.insert(index.end(), sizes_.size() - index.size(), SymExpr(0));
    } else {
      row = b_.simplify(floordiv(e, count));
      at = b_.simplify(mod(e, count));
      index = delinearize(row_ * length_ + e, sizes, b_.facts());
    }
    body(index, b_.simplify(row * (runs_ * run_) + (reverse ? count - 1 - at : at)));
    b_.end_for();
  }

  /// Sums up to each element, or before it, from where its run begins.
  void add_runs(const SymExpr& count) {
    const Symbol run = b_.begin_for(b_.simplify(rows_here_ * runs_), ForStmt::Kind::Vector);
    const Scalar start = zero(b_, accumulator_);
    const Symbol k = b_.begin_for(run_, ForStmt::Kind::Serial);
    const Scalar before = b_.carry(start);
    const SymExpr first = rows_ == 1 ? SymExpr(run) : b_.simplify(mod(run, runs_));
    const SymExpr q = b_.simplify(SymExpr(run) * run_ + k);
    const bool whole = count.is_constant() && count.constant() == runs_ * run_;
    const Mask inside = whole ? Mask() : where_less(b_, {}, b_.simplify(first * run_ + k), count);
    const Scalar sum = b_.apply(ScalarOp::Add, before, b_.load(elements_, place(q), id_of(inside)));
    b_.store(elements_, place(q), ctx_.node().flag("exclusive") ? before : sum);
    const Scalar total = b_.set_next(before, sum);
    b_.end_for();
    b_.store(totals_[0], run, total);
    b_.end_for();
  }

  /// Makes totals of runs those of their row up to them. @return where they are.
  NestBufferId add_totals() {
    std::size_t from = 0;
    for (std::int64_t distance = 1; distance < runs_; distance *= 2) {
      const Symbol run = b_.begin_for(b_.simplify(rows_here_ * runs_), ForStmt::Kind::Vector);
      const Scalar sum = b_.apply(ScalarOp::Add, total_before(totals_[from], run, distance),
                                  b_.load(totals_[from], run));
      from = 1 - from;
      b_.store(totals_[from], run, sum);
      b_.end_for();
    }
    return totals_[from];
  }

  /// The total `distance` runs before, of the same row, or 0.
  Scalar total_before(NestBufferId totals, const SymExpr& run, std::int64_t distance) {
    const SymExpr first = rows_ == 1 ? run : b_.simplify(mod(run, runs_));
    const Mask is_there = where_less(b_, {}, distance - 1, first);
    return b_.load(totals, b_.simplify(run - distance), id_of(is_there));
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> sizes_;
  const std::size_t axis_;
  const SymExpr length_;
  const DType accumulator_;
  bool in_tiles_ = false;  ///< of one row
  std::int64_t run_ = 0;   ///< elements
  std::int64_t runs_ = 0;  ///< of a row or tile
  std::int64_t rows_ = 0;  ///< of a block
  SymExpr row_, rows_here_;
  NestBufferId elements_ = 0;
  std::array<NestBufferId, 2> totals_{};
};

void build_scan(NestContext& ctx) {
  const auto sizes = ctx.output_sizes();
  const std::size_t axis = axis_of(ctx);
  const SymExpr columns = base::product(std::span(sizes).subspan(axis + 1));
  const bool in_rows = columns.is_constant(1) && !sizes[axis].is_constant(0);
  const bool on_cuda = ctx.options().target == LowerOptions::Target::Cuda;
  const bool is_long = sizes[axis].as_constant().value_or(kSharedRow) >= kSharedRow;
  if (on_cuda && in_rows && is_long && !ctx.node().flag("reverse"))
    build_shared_row(ctx);
  else if (on_cuda && in_rows)
    RowScan(ctx).build();
  else
    ScanNest(ctx).build();
}

}  // namespace

const NestRecipe kScanRecipe{.name = "scan", .epilogue = true, .build = build_scan};

}  // namespace heddle::jit
