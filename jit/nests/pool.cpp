// max_pool, max_pool_indices and avg_pool as a nest: elements along the last dimension side by side.
//
//   for p in all dimensions of the result but the last one (parallel)
//     for o in that (vector): spatial, or channels
//       for taps (serial): carry the largest / its index / the sum
//       result(p, o)
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
    const Scalar sum = for_each_tap(b_, loops_, {zero(b_, accumulator)}, body)[0];
    SymExpr count = 1;
    for (std::size_t d = 0; d < spatial(); ++d) count *= counted(d);
    const Scalar divisor = b_.convert(b_.from_index(count), accumulator);
    return b_.convert(b_.apply(ScalarOp::Div, {sum, divisor}), dtype_);
  }

  /// Taps along dimension d that the divisor counts.
  SymExpr counted(std::size_t d) const {
    if (!ctx_.node().flag("count_include_pad")) {
      const SymExpr inside = window_.end_tap(d, at(d)) - window_.first_tap(d, at(d));
      return max(0, inside);
    }
    if (!window_.rounds_up) return window_.kernel[d];
    const SymExpr padded = window_.input[d] + window_.pads_low[d] + window_.pads_high[d];
    const SymExpr left = padded - at(d) * window_.strides[d];
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
};

void build_pool(NestContext& ctx) { PoolNest(ctx).build(); }

}  // namespace

const NestRecipe kPoolRecipe{
    .name = "pool", .memory_operands = 0b1, .epilogue = true, .build = build_pool};

}  // namespace heddle::jit
