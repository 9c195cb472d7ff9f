// max_pool, max_pool_indices and avg_pool as a nest: elements along the last dimension side by side.
//
//   for p in all dimensions of the result but the last one (parallel)
//     for o in that (vector): spatial, or channels
//       for taps (serial): carry the largest / its index / the sum
//       result(p, o)
//
// On the CPU, where channels come last, taps of windows that lie inside are written out.
//
// On the CPU, where the windows slide along the last dimension, the largest and the sum are found in two steps without a
// mask: of the rows of all windows at once, then along what these give, padded, in a buffer of its own. Each step is done for all
// rows of a block before the next one reads what it stored: vectors at other places than those stored wait until these are in
// the cache.
//
//   for p in blocks of rows of the result (parallel)
//     for row in the block (serial): column[row, ...] = padding
//     for row in the block (serial)
//       for j in the row (vector): column[row, low + j] = over taps of the other dimensions
//     for row in the block (serial)
//       for o (vector): result(row, o) = over taps from column[row, o * stride] on
//
// Windows that are far apart are found at every place instead, where neighbours lie side by side:
//
//     for row in the block (serial)
//       for j (vector): line[row, j] = over taps from column[row, j] on
//     for row in the block (serial)
//       for o (vector): result(row, o) = line[row, o * stride]
#include <algorithm>

#include "ir/ops/pool_ops.h"
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

class PoolNest {
 public:
  explicit PoolNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        out_(ctx.output_sizes()),
        dtype_(ctx.node().input(0).meta().dtype),
        window_(ctx.node()),
        axes_(ir::ops::pool_axes(ctx.node().attrs(), static_cast<std::int64_t>(out_.size()))) {
    for (std::size_t d = 0; d < spatial(); ++d)
      window_.input[d] = ctx.node().input(0).meta().sizes[axis(d)];
    const auto& kernel = ctx.node().ints("kernel");
    window_.kernel.assign(kernel.begin(), kernel.end());
    window_.rounds_up = ctx.node().flag("ceil_mode");
  }

  void build() {
    if (joins_rows()) return build_rows();
    const std::span<const SymExpr> rows = std::span(out_).first(out_.size() - 1);
    const SymExpr extent = base::product(rows);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    index_ = delinearize(p, rows, b_.facts());
    const SymExpr taps = base::product(window_.kernel);
    const bool writes_out = ctx_.options().target != LowerOptions::Target::Cuda &&
                            !is_last(axes_.back()) && ctx_.node().op_name() != "max_pool_indices" &&
                            taps.is_constant() && taps.constant() > 0 &&
                            taps.constant() <= kMostTaps;
    if (!writes_out) return store_row(&PoolNest::value);
    const Mask inside = all_taps_inside(spatial());
    if (!inside) return store_row(&PoolNest::written_out);
    b_.begin_if(*inside);
    store_row(&PoolNest::written_out);
    b_.end_if();
    b_.begin_if(b_.apply(ScalarOp::Not, {*inside}));
    store_row(&PoolNest::value);
    b_.end_if();
  }

 private:
  void store_row(Scalar (PoolNest::*element)()) {
    const Symbol o = b_.begin_for(out_.back(), ForStmt::Kind::Vector);
    index_.push_back(o);
    ctx_.result(0, index_, (this->*element)());
    index_.pop_back();
    b_.end_for();
  }

  /// Of a window that lies inside.
  Scalar written_out() {
    const Scalar found = over_all_taps(spatial(), base::product(window_.kernel).constant());
    return is_mean() ? divided(found) : found;
  }

  std::size_t spatial() const { return out_.size() - 2; }
  std::size_t axis(std::size_t d) const { return static_cast<std::size_t>(axes_[d]); }
  const SymExpr& at(std::size_t d) const { return index_[axis(d)]; }

  /// Whether what is found of several rows and along them is the same in any order.
  bool joins_rows() const {
    return ctx_.options().target != LowerOptions::Target::Cuda && is_last(axes_.back()) &&
           ctx_.node().op_name() != "max_pool_indices";
  }
  bool is_last(std::int64_t axis) const {
    return axis + 1 == static_cast<std::int64_t>(out_.size());
  }
  bool is_mean() const { return ctx_.node().op_name() == "avg_pool"; }
  DType joined_dtype() const { return is_mean() ? accumulator_of(dtype_) : dtype_; }
  Scalar nothing() { return is_mean() ? zero(b_, joined_dtype()) : lowest(b_, dtype_); }
  /// Whether the element is a NaN is seen before what was found so far is there: it comes first.
  Scalar joined(Scalar element, Scalar found) {
    return b_.apply(is_mean() ? ScalarOp::Add : ScalarOp::Max, {element, found});
  }

  /// Strides up to which whole vectors are read and every stride-th element picked.
  static constexpr std::int64_t kMostPicked = 4;
  /// Rows of the result that are worked on at once, at most, and the bytes that what is found of them may take.
  static constexpr std::int64_t kMostRows = 16;
  static constexpr std::int64_t kRowsBytes = 16 << 10;
  /// Those of rows whose length is not known, which are long as a rule.
  static constexpr std::int64_t kRowsOfAnyLength = 4;
  /// Taps that are written out, at most; where windows slide along the row, but for those along it.
  static constexpr std::int64_t kMostTaps = 16;

  /// What is found for the rows of a block, each in `pitch` elements of a buffer.
  struct Found {
    NestBufferId buffer;
    SymExpr pitch;

    SymExpr at(const SymExpr& row, const SymExpr& place) const { return row * pitch + place; }
  };

  void build_rows() {
    const std::span<const SymExpr> rows = std::span(out_).first(out_.size() - 1);
    const std::size_t last = spatial() - 1;
    const std::int64_t stride = window_.strides[last];
    const SymExpr reach = (window_.kernel[last] - 1) * window_.dilations[last];
    const SymExpr positions = max(0, (out_.back() - 1) * stride + 1);
    rows_ = rows_of(positions + reach);
    const SymExpr all = base::product(rows);
    const SymExpr blocks = base::ceildiv(all, rows_);
    const Symbol p = b_.new_axis(blocks);
    b_.set_parallel(p, blocks);
    const SymExpr first = SymExpr(p) * rows_;
    const SymExpr count = min(rows_, all - first);
    const Found column = padded_column(positions + reach, count);
    if (is_mean()) count_taps();
    const auto for_each_row = [&](const auto& body) {
      const Symbol row = b_.begin_for(count, ForStmt::Kind::Serial);
      index_ = delinearize(first + SymExpr(row), rows, b_.facts());
      body(SymExpr(row));
      b_.end_for();
    };
    for_each_row([&](const SymExpr& row) { join_rows(column, row, positions + reach); });
    std::optional<Found> line;
    if (stride > kMostPicked) {
      line = found(positions);
      for_each_row([&](const SymExpr& row) {
        const Symbol j = b_.begin_for(positions, ForStmt::Kind::Vector);
        b_.store(line->buffer, line->at(row, j), along(column, row, j));
        b_.end_for();
      });
    }
    for_each_row([&](const SymExpr& row) {
      const Symbol o = b_.begin_for(out_.back(), ForStmt::Kind::Vector);
      index_.push_back(o);
      const SymExpr place = SymExpr(o) * stride;
      const Scalar value =
          line ? b_.load(line->buffer, line->at(row, place)) : along(column, row, place);
      ctx_.result(0, index_, is_mean() ? divided(value) : value);
      b_.end_for();
    });
  }

  /// How many rows of `length` elements make a block.
  std::int64_t rows_of(const SymExpr& length) const {
    if (!length.is_constant()) return kRowsOfAnyLength;
    const std::int64_t bytes = std::max<std::int64_t>(1, length.constant()) *
                               static_cast<std::int64_t>(size_of(joined_dtype()));
    return std::clamp<std::int64_t>(kRowsBytes / bytes, 1, kMostRows);
  }

  /// A buffer for `length` elements of each row.
  Found found(const SymExpr& length) { return {local(length * rows_), length}; }

  NestBufferId local(const SymExpr& count) {
    return b_.add_local(joined_dtype(), count, count.is_constant() ? count.constant() : 0);
  }

  /// Of `length` elements of each row, from the first of the padding on; the padding is filled.
  Found padded_column(const SymExpr& length, const SymExpr& rows) {
    const Found column = found(length);
    const SymExpr low = min(window_.pads_low[spatial() - 1], length);
    const SymExpr inside = min(window_.input[spatial() - 1], length - low);
    const SymExpr high = length - low - inside;
    if (low.is_constant(0) && high.is_constant(0)) return column;
    const Symbol row = b_.begin_for(rows, ForStmt::Kind::Serial);
    fill(column, row, 0, low);
    fill(column, row, low + inside, high);
    b_.end_for();
    return column;
  }

  /// What is found over all taps but those along the row. Where these all lie inside, they are written out: nothing is computed
  /// for each of them but where it lies.
  void join_rows(const Found& column, const SymExpr& row, const SymExpr& length) {
    const std::size_t last = spatial() - 1;
    const auto store = [&](const auto& over_taps) {
      const SymExpr low = min(window_.pads_low[last], length);
      const Symbol j = b_.begin_for(min(window_.input[last], length - low), ForStmt::Kind::Vector);
      index_.push_back(j);
      b_.store(column.buffer, column.at(row, low + SymExpr(j)), over_taps());
      index_.pop_back();
      b_.end_for();
    };
    const SymExpr taps = base::product(std::span(window_.kernel).first(last));
    const auto looped = [&] { return over_taps_inside(); };
    if (!taps.is_constant() || taps.constant() > kMostTaps) return store(looped);
    const auto whole = [&] { return over_all_taps(last, taps.constant()); };
    const Mask inside = all_taps_inside(last);
    if (!inside) return store(whole);
    b_.begin_if(*inside);
    store(whole);
    b_.end_if();
    b_.begin_if(b_.apply(ScalarOp::Not, {*inside}));
    store(looped);
    b_.end_if();
  }

  Scalar over_taps_inside() {
    std::vector<TapLoop> loops;
    for (std::size_t d = 0; d + 1 < spatial(); ++d) loops.push_back(window_.taps(d, at(d), true));
    const auto body = [&](const Index& position, const Index&, const Mask& mask,
                          std::span<const Scalar> now) {
      const Scalar found = b_.convert(element(position, mask), joined_dtype());
      return std::vector<Scalar>{select(b_, mask, joined(found, now[0]), now[0])};
    };
    return for_each_tap(b_, loops, {nothing()}, body)[0];
  }

  /// What is found over the `count` taps of the first `dims` dimensions.
  Scalar over_all_taps(std::size_t dims, std::int64_t count) {
    std::optional<Scalar> found;
    for (std::int64_t number = 0; number < count; ++number) {
      Index position(dims);
      std::int64_t rest = number;
      for (std::size_t d = position.size(); d-- > 0;) {
        const std::int64_t kernel = window_.kernel[d].constant();
        position[d] = begin(d) + rest % kernel * window_.dilations[d];
        rest /= kernel;
      }
      const Scalar value = b_.convert(element(position, std::nullopt), joined_dtype());
      found = found ? joined(value, *found) : value;
    }
    return *found;
  }

  /// Where the first tap along dimension d lies.
  SymExpr begin(std::size_t d) const { return at(d) * window_.strides[d] - window_.pads_low[d]; }

  /// Whether all taps of the first `dims` dimensions do.
  Mask all_taps_inside(std::size_t dims) {
    Mask inside;
    for (std::size_t d = 0; d < dims; ++d) {
      const SymExpr last = begin(d) + (window_.kernel[d] - 1) * window_.dilations[d];
      if (window_.pads_low[d] > 0) inside = where_less(b_, inside, -1, begin(d));
      if (window_.pads_high[d] > 0 || window_.rounds_up)
        inside = where_less(b_, inside, last, window_.input[d]);
    }
    return inside;
  }

  /// Taps along the last dimension that each element of a row counts.
  void count_taps() {
    taps_ = local(out_.back());
    const Symbol o = b_.begin_for(out_.back(), ForStmt::Kind::Vector);
    b_.store(*taps_, o, b_.convert(b_.from_index(counted(spatial() - 1, o)), joined_dtype()));
    b_.end_for();
  }

  void fill(const Found& column, const SymExpr& row, const SymExpr& first, const SymExpr& count) {
    constexpr std::int64_t kFew = 4;
    if (count.is_constant() && count.constant() <= kFew) {
      for (std::int64_t k = 0; k < count.constant(); ++k)
        b_.store(column.buffer, column.at(row, first + k), nothing());
      return;
    }
    const Symbol j = b_.begin_for(count, ForStmt::Kind::Vector);
    b_.store(column.buffer, column.at(row, first + SymExpr(j)), nothing());
    b_.end_for();
  }

  /// What is found from `first` on along the row.
  Scalar along(const Found& column, const SymExpr& row, const SymExpr& first) {
    const std::size_t last = spatial() - 1;
    const auto tap = [&](const SymExpr& number) {
      return b_.load(column.buffer, column.at(row, first + number * window_.dilations[last]));
    };
    constexpr std::int64_t kUnrolled = 8;
    const SymExpr& kernel = window_.kernel[last];
    if (kernel.is_constant() && kernel.constant() <= kUnrolled) {
      Scalar value = tap(0);
      for (std::int64_t k = 1; k < kernel.constant(); ++k) value = joined(tap(k), value);
      return value;
    }
    const Scalar initial = nothing();
    const Symbol k = b_.begin_for(kernel, ForStmt::Kind::Serial);
    const Scalar value = b_.carry(initial);
    const Scalar result = b_.set_next(value, joined(tap(k), value));
    b_.end_for();
    return result;
  }

  Scalar value() {
    loops_.clear();
    for (std::size_t d = 0; d < spatial(); ++d)
      loops_.push_back(window_.taps(d, at(d), axis(d) + 1 < out_.size()));
    const std::string_view op = ctx_.node().op_name();
    if (op == "avg_pool") return mean();
    return op == "max_pool" ? largest() : largest_index();
  }

  Scalar element(const Index& position, const Mask& mask) {
    Index index = index_;
    for (std::size_t d = 0; d < position.size(); ++d) index[axis(d)] = position[d];
    return ctx_.operand(0, index, id_of(mask));
  }

  Scalar largest() {
    const auto body = [&](const Index& position, const Index&, const Mask& mask,
                          std::span<const Scalar> now) {
      const Scalar larger = b_.apply(ScalarOp::Max, {now[0], element(position, mask)});
      return std::vector<Scalar>{select(b_, mask, larger, now[0])};
    };
    return for_each_tap(b_, loops_, {lowest(b_, dtype_)}, body)[0];
  }

  Scalar largest_index() {
    const auto body = [&](const Index& position, const Index&, const Mask& mask,
                          std::span<const Scalar> now) {
      const Scalar value = element(position, mask);
      const Scalar taken = *both(b_, mask, wins(value, now[0], now[1]));
      const Scalar number = b_.from_index(number_of(position));
      return std::vector<Scalar>{b_.apply(ScalarOp::Select, {taken, value, now[0]}),
                                 b_.apply(ScalarOp::Select, {taken, number, now[1]})};
    };
    const Scalar none = b_.constant_int(DType::I64, -1);
    return for_each_tap(b_, loops_, {lowest(b_, dtype_), none}, body)[1];
  }

  /// The first element wins, then larger ones; NaN wins over numbers.
  Scalar wins(Scalar value, Scalar best, Scalar best_index) {
    const Scalar first = b_.apply(ScalarOp::Lt, {best_index, zero(b_, DType::I64)});
    Scalar better = b_.apply(ScalarOp::Gt, {value, best});
    if (is_floating(dtype_)) {
      better = b_.apply(ScalarOp::Or, {better, b_.apply(ScalarOp::IsNan, {value})});
      const Scalar settled = b_.apply(ScalarOp::IsNan, {best});
      better = b_.apply(ScalarOp::And, {better, b_.apply(ScalarOp::Not, {settled})});
    }
    return b_.apply(ScalarOp::Or, {first, better});
  }

  SymExpr number_of(const Index& position) {
    SymExpr plane = index_[0] * out_[1] + index_[1];
    SymExpr number = 0;
    const bool column_major = ctx_.node().flag("column_major");
    for (std::size_t d = 0; d < position.size(); ++d) {
      const std::size_t k = column_major ? position.size() - 1 - d : d;
      number = number * window_.input[k] + position[k];
    }
    return plane * base::product(window_.input) + number;
  }

  Scalar mean() {
    const DType accumulator = accumulator_of(dtype_);
    const auto body = [&](const Index& position, const Index&, const Mask& mask,
                          std::span<const Scalar> now) {
      const Scalar value = b_.convert(element(position, mask), accumulator);
      const Scalar sum = b_.apply(ScalarOp::Add, {now[0], value});
      return std::vector<Scalar>{select(b_, mask, sum, now[0])};
    };
    return divided(for_each_tap(b_, loops_, {zero(b_, accumulator)}, body)[0]);
  }

  Scalar divided(Scalar sum) {
    SymExpr count = 1;
    for (std::size_t d = 0; d < spatial() - (taps_ ? 1 : 0); ++d) count *= counted(d, at(d));
    Scalar divisor = b_.convert(b_.from_index(count), accumulator_of(dtype_));
    if (taps_) divisor = b_.apply(ScalarOp::Mul, {divisor, b_.load(*taps_, at(spatial() - 1))});
    return b_.convert(b_.apply(ScalarOp::Div, {sum, divisor}), dtype_);
  }

  /// Taps along dimension d that the divisor counts, for the window at `position`.
  SymExpr counted(std::size_t d, const SymExpr& position) const {
    if (!ctx_.node().flag("count_include_pad")) {
      const SymExpr inside = window_.end_tap(d, position) - window_.first_tap(d, position);
      return max(0, inside);
    }
    if (!window_.rounds_up) return window_.kernel[d];
    const SymExpr padded = window_.input[d] + window_.pads_low[d] + window_.pads_high[d];
    const SymExpr left = padded - position * window_.strides[d];
    return max(0, min(window_.kernel[d], ceildiv(left, window_.dilations[d])));
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> out_;
  const DType dtype_;
  WindowShape window_;
  const std::vector<std::int64_t> axes_;
  Index index_;
  std::vector<TapLoop> loops_;
  std::int64_t rows_ = 1;             ///< of a block
  std::optional<NestBufferId> taps_;  ///< of a mean: how many are counted along the row
};

void build_pool(NestContext& ctx) { PoolNest(ctx).build(); }

}  // namespace

const NestRecipe kPoolRecipe{
    .name = "pool", .memory_operands = 0b1, .epilogue = true, .build = build_pool};

}  // namespace heddle::jit
