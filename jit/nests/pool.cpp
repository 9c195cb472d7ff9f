// max_pool, max_pool_indices and avg_pool as a nest: elements along the last dimension side by side.
//
//   for p in all dimensions of the result but the last one (parallel)
//     for o in that (vector): spatial, or channels
//       for taps (serial): carry the largest / its index / the sum
//       result(p, o)
//
// On the CPU, where the windows slide along the last dimension, the largest and the sum are found in two steps without a
// mask: of the rows of all windows at once, then along what these give, padded, in a buffer of its own.
//
//   for p in blocks of rows of the result (parallel): the padding of column
//     for row in the block (serial)
//       for j in the row (vector): column[low + j] = over taps of the other dimensions
//       for j (vector): line[j] = over taps from column[j] on
//       for o (vector): result(row, o) = line[o * stride]
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
    const Symbol o = b_.begin_for(out_.back(), ForStmt::Kind::Vector);
    index_.push_back(o);
    for (std::size_t d = 0; d < spatial(); ++d)
      loops_.push_back(window_.taps(d, at(d), axis(d) + 1 < out_.size()));
    ctx_.result(0, index_, value());
    b_.end_for();
  }

 private:
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
  Scalar joined(Scalar a, Scalar b) {
    return b_.apply(is_mean() ? ScalarOp::Add : ScalarOp::Max, {a, b});
  }

  /// Rows of the result that share what is made once: the padding, and how many taps each element of a row has.
  static constexpr std::int64_t kRows = 16;

  void build_rows() {
    const std::span<const SymExpr> rows = std::span(out_).first(out_.size() - 1);
    const SymExpr all = base::product(rows);
    const SymExpr blocks = base::ceildiv(all, kRows);
    const Symbol p = b_.new_axis(blocks);
    b_.set_parallel(p, blocks);
    const std::size_t last = spatial() - 1;
    const SymExpr reach = (window_.kernel[last] - 1) * window_.dilations[last];
    const SymExpr positions = max(0, (out_.back() - 1) * window_.strides[last] + 1);
    const NestBufferId column = padded_column(positions + reach);
    const NestBufferId line = window_.strides[last] == 1 ? column : local(positions);
    if (is_mean()) count_taps();
    const SymExpr first = SymExpr(p) * kRows;
    const Symbol row = b_.begin_for(min(kRows, all - first), ForStmt::Kind::Serial);
    index_ = delinearize(first + SymExpr(row), rows, b_.facts());
    join_rows(column, positions + reach);
    if (line != column) {
      const Symbol j = b_.begin_for(positions, ForStmt::Kind::Vector);
      b_.store(line, j, along(column, j));
      b_.end_for();
    }
    const Symbol o = b_.begin_for(out_.back(), ForStmt::Kind::Vector);
    index_.push_back(o);
    const Scalar value =
        line == column ? along(column, o) : b_.load(line, SymExpr(o) * window_.strides[last]);
    ctx_.result(0, index_, is_mean() ? divided(value) : value);
    b_.end_for();
    b_.end_for();
  }

  NestBufferId local(const SymExpr& count) {
    return b_.add_local(joined_dtype(), count, count.is_constant() ? count.constant() : 0);
  }

  /// A buffer of `count` elements, from the first of the padding on; the padding is filled.
  NestBufferId padded_column(const SymExpr& count) {
    const NestBufferId column = local(count);
    const SymExpr low = min(window_.pads_low[spatial() - 1], count);
    const SymExpr inside = min(window_.input[spatial() - 1], count - low);
    fill(column, 0, low);
    fill(column, low + inside, count - low - inside);
    return column;
  }

  /// What is found over all taps but those along the row.
  void join_rows(NestBufferId column, const SymExpr& count) {
    const std::size_t last = spatial() - 1;
    const SymExpr low = min(window_.pads_low[last], count);
    const Symbol j = b_.begin_for(min(window_.input[last], count - low), ForStmt::Kind::Vector);
    index_.push_back(j);
    std::vector<TapLoop> loops;
    for (std::size_t d = 0; d < last; ++d) loops.push_back(window_.taps(d, at(d), true));
    const auto body = [&](const Index& position, const Index&, const Mask& mask,
                          std::span<const Scalar> now) {
      const Scalar found = b_.convert(element(position, mask), joined_dtype());
      return std::vector<Scalar>{select(b_, mask, joined(now[0], found), now[0])};
    };
    b_.store(column, low + SymExpr(j), for_each_tap(b_, loops, {nothing()}, body)[0]);
    index_.pop_back();
    b_.end_for();
  }

  /// Taps along the last dimension that each element of a row counts.
  void count_taps() {
    taps_ = local(out_.back());
    const Symbol o = b_.begin_for(out_.back(), ForStmt::Kind::Vector);
    b_.store(*taps_, o, b_.convert(b_.from_index(counted(spatial() - 1, o)), joined_dtype()));
    b_.end_for();
  }

  void fill(NestBufferId column, const SymExpr& first, const SymExpr& count) {
    if (count.is_constant(0)) return;
    const Symbol j = b_.begin_for(count, ForStmt::Kind::Vector);
    b_.store(column, first + SymExpr(j), nothing());
    b_.end_for();
  }

  /// What is found from `first` on along the row.
  Scalar along(NestBufferId column, const SymExpr& first) {
    const std::size_t last = spatial() - 1;
    const auto tap = [&](const SymExpr& number) {
      return b_.load(column, first + number * window_.dilations[last]);
    };
    constexpr std::int64_t kUnrolled = 8;
    const SymExpr& kernel = window_.kernel[last];
    if (kernel.is_constant() && kernel.constant() <= kUnrolled) {
      Scalar value = tap(0);
      for (std::int64_t k = 1; k < kernel.constant(); ++k) value = joined(value, tap(k));
      return value;
    }
    const Scalar initial = nothing();
    const Symbol k = b_.begin_for(kernel, ForStmt::Kind::Serial);
    const Scalar value = b_.carry(initial);
    const Scalar result = b_.set_next(value, joined(value, tap(k)));
    b_.end_for();
    return result;
  }

  Scalar value() {
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
  std::optional<NestBufferId> taps_;  ///< of a mean: how many are counted along the row
};

void build_pool(NestContext& ctx) { PoolNest(ctx).build(); }

}  // namespace

const NestRecipe kPoolRecipe{
    .name = "pool", .memory_operands = 0b1, .epilogue = true, .build = build_pool};

}  // namespace heddle::jit
