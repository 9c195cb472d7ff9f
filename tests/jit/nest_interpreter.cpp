#include "tests/jit/nest_interpreter.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ir/literal.h"
#include "ir/ops/bit_ops.h"
#include "ir/ops/host_scalar.h"

namespace heddle::test {
namespace {

using base::SymExpr;
using ir::ReduceOp;
using ir::ScalarOp;
using ir::ops::HostScalar;
using namespace jit;  // NOLINT: the statements of a nest are many

HostScalar number(DType dtype, double value) {
  return ir::ops::convert(HostScalar::of_real(DType::F64, value), dtype);
}

HostScalar identity(ReduceOp op, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case ReduceOp::Prod:
      return number(dtype, 1);
    case ReduceOp::Max:
    case ReduceOp::ArgMax:
      return number(dtype, -infinity);
    case ReduceOp::Min:
    case ReduceOp::ArgMin:
      return number(dtype, infinity);
    case ReduceOp::And:
      return HostScalar::of_bool(true);
    default:
      return number(dtype, 0);
  }
}

ScalarOp combiner(ReduceOp op) {
  switch (op) {
    case ReduceOp::Prod:
      return ScalarOp::Mul;
    case ReduceOp::Max:
      return ScalarOp::Max;
    case ReduceOp::Min:
      return ScalarOp::Min;
    case ReduceOp::And:
      return ScalarOp::And;
    case ReduceOp::Or:
      return ScalarOp::Or;
    default:
      return ScalarOp::Add;
  }
}

bool is_within(const HostScalar& number, jit::GivenStmt::Range range) {
  using Range = jit::GivenStmt::Range;
  const double value =
      is_floating(number.dtype) ? number.real : static_cast<double>(number.integer);
  switch (range) {
    case Range::Any:
      break;
    case Range::Unsigned:
      return value == std::floor(value) && value >= 0 && value <= 255;
    case Range::Signed:
      return value == std::floor(value) && value >= -128 && value <= 127;
    case Range::Scale:
      return value >= 0x1p-60 && value <= 0x1p60;
  }
  return std::isfinite(value);
}

/// What a reduction carries through its loop.
class Accumulator {
 public:
  explicit Accumulator(const LoopReduction& reduction)
      : reduction_(reduction), value_(identity(reduction.op, reduction.dtype)) {}

  void add(std::span<const HostScalar> contribution) {
    switch (reduction_.op) {
      case ReduceOp::ArgMax:
      case ReduceOp::ArgMin:
        add_arg(contribution[0], contribution[1].integer);
        break;
      case ReduceOp::Welford:
        add_welford(contribution[0].real);
        break;
      default:
        value_ = ir::ops::apply(combiner(reduction_.op), {value_, contribution[0]});
    }
  }

  std::vector<HostScalar> results() const {
    switch (reduction_.op) {
      case ReduceOp::ArgMax:
      case ReduceOp::ArgMin:
        return {value_, HostScalar::of_integer(DType::I64, index_)};
      case ReduceOp::Welford:
        return {number(reduction_.dtype, mean_), number(reduction_.dtype, squares_),
                number(reduction_.dtype, count_)};
      default:
        return {value_};
    }
  }

 private:
  void add_arg(const HostScalar& value, std::int64_t index) {
    const bool first = index_ < 0;
    const bool old_nan = !first && is_nan(value_);
    const bool better = !old_nan && (is_nan(value) || beats(value));
    const bool tie = (old_nan && is_nan(value)) || (!old_nan && equals(value));
    if (first || better || (tie && index < index_)) {
      value_ = value;
      index_ = index;
    }
  }
  bool beats(const HostScalar& value) const {
    const ScalarOp op = reduction_.op == ReduceOp::ArgMax ? ScalarOp::Gt : ScalarOp::Lt;
    return ir::ops::apply(op, {value, value_}).truth();
  }
  bool equals(const HostScalar& value) const {
    return ir::ops::apply(ScalarOp::Eq, {value, value_}).truth();
  }
  static bool is_nan(const HostScalar& value) {
    return is_floating(value.dtype) && std::isnan(value.real);
  }
  void add_welford(double value) {
    count_ += 1;
    const double distance = value - mean_;
    mean_ += distance / count_;
    squares_ += distance * (value - mean_);
  }

  const LoopReduction& reduction_;
  HostScalar value_;
  std::int64_t index_ = -1;
  double mean_ = 0, squares_ = 0, count_ = 0;
};

class Machine {
 public:
  Machine(const Nest& nest, std::span<const InterpreterBuffer> buffers,
          std::span<const std::int64_t> sizes)
      : nest_(nest), buffers_(buffers.begin(), buffers.end()) {
    HD_CHECK(buffers.size() == nest.global_count() && sizes.size() == nest.size_count);
    for (std::uint32_t k = 0; k < sizes.size(); ++k) symbols_[{Symbol::Kind::Size, k}] = sizes[k];
  }

  std::int32_t run(bool backwards) {
    const std::int64_t count = value_of(nest_.parallel_extent);
    for (std::int64_t k = 0; k < count; ++k) {
      symbols_[nest_.parallel_axis] = backwards ? count - 1 - k : k;
      make_locals();
      run(nest_.body);
    }
    return status_;
  }

  void operator()(const ConstStmt& s) {
    set(s.result, is_floating(s.dtype) ? HostScalar::of_real(s.dtype, s.number)
                                       : HostScalar::of_integer(s.dtype, s.integer));
  }
  void operator()(const GivenStmt& s) {
    const std::int64_t given = symbols_.at({Symbol::Kind::Size, s.parameter});
    const HostScalar number =
        s.dtype == DType::F32
            ? HostScalar::of_real(s.dtype, std::bit_cast<float>(static_cast<std::int32_t>(given)))
            : HostScalar::of_integer(s.dtype, given);
    HD_CHECK(is_within(number, s.range), "a number that is given is out of its range");
    set(s.result, number);
  }
  void operator()(const ApplyStmt& s) {
    std::vector<HostScalar> operands;
    for (const ScalarId id : s.operands) operands.push_back(get(id));
    set(s.result, ir::ops::apply(s.op, operands));
  }
  void operator()(const ConvertStmt& s) {
    set(s.result, ir::ops::convert(get(s.operand), s.dtype));
  }
  void operator()(const BitsStmt& s) {
    const double number = get(s.operand).real;
    const std::int64_t bits = s.dtype == DType::I64
                                  ? std::bit_cast<std::int64_t>(number)
                                  : std::bit_cast<std::int32_t>(static_cast<float>(number));
    set(s.result, HostScalar::of_integer(s.dtype, bits));
  }
  void operator()(const IndexStmt& s) {
    set(s.result, HostScalar::of_integer(DType::I64, value_of(s.index)));
  }
  void operator()(const BindStmt& s) {
    const std::int64_t low = value_of(s.low);
    const std::int64_t high = value_of(s.high);
    const std::int64_t value = get(s.operand).integer;
    const bool outside = value < low || value > high;
    if (outside && s.check != 0 && status_ == 0 && holds(s.mask)) status_ = s.check;
    symbols_[s.symbol] = std::max(low, std::min(value, high));
  }
  void operator()(const LoadStmt& s) {
    set(s.result, holds(s.mask) ? *element(s.buffer, value_of(s.index))
                                : ir::ops::convert(HostScalar::of_bool(false), s.dtype));
  }
  void operator()(const StoreStmt& s) {
    if (!holds(s.mask)) return;
    const std::int64_t index = value_of(s.index);
    HostScalar value = get(s.operand);
    if (s.combine) value = ir::ops::apply(combiner(*s.combine), {*element(s.buffer, index), value});
    put(s.buffer, index, value);
  }
  void operator()(const IfStmt& s) {
    if (get(s.condition).truth()) run(*s.body);
  }
  void operator()(const ForStmt& s) {
    const std::int64_t extent = value_of(s.extent);
    std::vector<Accumulator> accumulators;
    for (const LoopReduction& reduction : s.reductions) accumulators.emplace_back(reduction);
    for (const LoopCarried& carried : s.carried) set(carried.current, get(carried.initial));
    for (std::int64_t k = 0; k < extent; ++k) {
      symbols_[s.axis] = k;
      run(*s.body);
      for (std::size_t r = 0; r < accumulators.size(); ++r)
        contribute(s.reductions[r], accumulators[r]);
      std::vector<HostScalar> next;
      for (const LoopCarried& carried : s.carried) next.push_back(get(carried.next));
      for (std::size_t c = 0; c < next.size(); ++c) set(s.carried[c].current, next[c]);
    }
    for (std::size_t r = 0; r < accumulators.size(); ++r) {
      const std::vector<HostScalar> results = accumulators[r].results();
      for (std::size_t k = 0; k < results.size(); ++k) set(s.reductions[r].results[k], results[k]);
    }
    for (const LoopCarried& carried : s.carried) set(carried.result, get(carried.current));
  }
  void operator()(const ContractStmt& s) {
    const std::int64_t rows = value_of(s.rows);
    const std::int64_t columns = value_of(s.columns);
    const std::int64_t depth = value_of(s.depth);
    HD_CHECK(rows <= s.tile_rows && columns <= s.tile_columns);
    for (std::int64_t m = 0; m < rows; ++m) {
      for (std::int64_t n = 0; n < columns; ++n) {
        const std::int64_t place = m * s.tile_columns + n;
        HostScalar sum = s.accumulate ? *element(s.acc, place) : number(s.dtype, 0);
        // Of panels a column is one of its own.
        const std::int64_t panel = s.panel_columns == 0 ? 0 : n / s.panel_columns;
        const std::int64_t column = n - panel * s.panel_columns;
        const std::int64_t in_b = panel * value_of(s.panel_stride);
        add_runs(s, m, column, 0, 0, in_b, sum);
        for (std::int64_t k = 0; k < (s.runs.empty() ? depth : 0); ++k) {
          for (std::int64_t g = 0; g < (s.gathers ? 1 : s.group); ++g) {
            const bool fixed = s.b.dequantised && s.b.dequantised->fixed;
            const HostScalar a =
                fixed ? fixed_number(s, m, k) : ir::ops::convert(operand(s.a, m, k, g), s.dtype);
            HostScalar b = operand(s.b, k, column, in_b + g);
            if (s.gathers) b = ir::ops::convert(b, DType::BF16);
            b = ir::ops::convert(b, s.dtype);
            sum = ir::ops::apply(ScalarOp::Add, {sum, ir::ops::apply(ScalarOp::Mul, {a, b})});
          }
        }
        put(s.acc, place, sum);
      }
    }
  }

 private:
  /// Runs from number `run` on, moved by so much in a and b.
  void add_runs(const ContractStmt& s, std::int64_t m, std::int64_t n, std::size_t run,
                std::int64_t of_a, std::int64_t of_b, HostScalar& sum) {
    if (s.runs.empty()) return;
    if (run < s.runs.size()) {
      const ContractStmt::Run& now = s.runs[run];
      for (std::int64_t k = 0; k < value_of(now.count); ++k)
        add_runs(s, m, n, run + 1, of_a + k * value_of(now.a_stride),
                 of_b + k * value_of(now.b_stride), sum);
      return;
    }
    for (std::int64_t k = 0; k < value_of(s.depth); ++k)
      for (std::int64_t g = 0; g < s.group; ++g) {
        const HostScalar a = ir::ops::convert(operand(s.a, m, k, of_a + g), s.dtype);
        const HostScalar b = ir::ops::convert(operand(s.b, k, n, of_b + g), s.dtype);
        sum = ir::ops::apply(ScalarOp::Add, {sum, ir::ops::apply(ScalarOp::Mul, {a, b})});
      }
  }

  void run(const Block& block) {
    for (const Stmt& statement : block) std::visit(*this, statement.node);
  }

  void contribute(const LoopReduction& reduction, Accumulator& accumulator) {
    if (!holds(reduction.mask)) return;
    std::vector<HostScalar> contribution;
    for (const ScalarId id : reduction.contributions) contribution.push_back(get(id));
    accumulator.add(contribution);
  }

  /// Local buffers begin each parallel iteration with garbage.
  void make_locals() {
    buffers_.resize(nest_.global_count());
    locals_.clear();
    for (const NestBuffer& buffer : nest_.buffers) {
      if (buffer.scope != NestBuffer::Scope::Local) continue;
      const std::int64_t count = value_of(buffer.count);
      HD_CHECK(buffer.max_count == 0 || count <= buffer.max_count);
      locals_.emplace_back(static_cast<std::size_t>(count) * size_of(buffer.dtype),
                           std::byte{0x7e});
      buffers_.push_back({locals_.back().data(), count});
    }
  }

  ir::Literal view(NestBufferId id) {
    const InterpreterBuffer& buffer = buffers_.at(id);
    return ir::Literal(nest_.buffers[id].dtype, {buffer.count}, {1}, buffer.data, nullptr);
  }
  std::optional<HostScalar> element(NestBufferId id, std::int64_t index) {
    check_bounds(id, index);
    return ir::ops::load(view(id), index);
  }
  void put(NestBufferId id, std::int64_t index, const HostScalar& value) {
    check_bounds(id, index);
    ir::Literal target = view(id);
    ir::ops::store(target, index, value);
  }
  void check_bounds(NestBufferId id, std::int64_t index) const {
    HD_CHECK(index >= 0 && index < buffers_.at(id).count,
             nest_.buffers[id].name + "[" + std::to_string(index) + "] of " +
                 std::to_string(buffers_.at(id).count) + " in\n" + print(nest_));
  }
  HostScalar operand(const TileOperand& tile, std::int64_t row, std::int64_t column,
                     std::int64_t member) {
    if (tile.windows) return tap(tile, row, column);
    if (tile.dequantised) return dequantised(tile, row, column);
    return *element(tile.buffer, value_of(tile.base) + row * value_of(tile.row_stride) +
                                     column * value_of(tile.column_stride) + member);
  }

  HostScalar dequantised(const TileOperand& tile, std::int64_t row, std::int64_t column) {
    const Dequantised& d = *tile.dequantised;
    const auto beside = [&](const Dequantised::Part& part) {
      const std::int64_t of_row = d.group == 0 ? 0 : row / d.group;
      return ir::ops::convert(
          *element(part.buffer, value_of(part.base) + of_row * value_of(part.row_stride) +
                                    column * value_of(part.column_stride)),
          DType::F32);
    };
    const std::int64_t stored_row = d.bits == 0 ? row : row / (32 / d.bits);
    HostScalar value =
        *element(tile.buffer, value_of(tile.base) + stored_row * value_of(tile.row_stride) +
                                  column * value_of(tile.column_stride));
    if (d.bits != 0)
      value = HostScalar::of_integer(
          DType::I32,
          ir::ops::signed_bits(value.integer >> ir::ops::bit_of_row(row % (32 / d.bits), d.bits),
                               d.bits));
    value = ir::ops::convert(value, DType::F32);
    if (d.zero) value = ir::ops::apply(ScalarOp::Sub, {value, beside(*d.zero)});
    value = ir::ops::apply(ScalarOp::Mul, {value, beside(d.scale)});
    return ir::ops::convert(value, d.dtype);
  }

  HostScalar fixed_number(const ContractStmt& s, std::int64_t row, std::int64_t column) {
    const Dequantised::FixedRows& f = *s.b.dequantised->fixed;
    const std::int64_t first =
        value_of(s.a.base) + row * value_of(s.a.row_stride) + column * value_of(s.a.column_stride);
    double sum = 0;
    for (std::int64_t d = f.digits; d-- > 0;)
      sum = sum * 256 +
            static_cast<double>(element(s.a.buffer, first + d * value_of(f.digit_stride))->integer);
    const HostScalar scale =
        *element(f.scale.buffer, value_of(f.scale.base) + row * value_of(f.scale.row_stride) +
                                     column / f.block * value_of(f.scale.column_stride));
    return ir::ops::apply(ScalarOp::Mul, {number(DType::F32, sum), scale});
  }

  HostScalar tap(const TileOperand& tile, std::int64_t row, std::int64_t column) {
    std::int64_t window = value_of(tile.windows->first) + column;
    const std::int64_t channels = tile.windows->channels;
    const std::int64_t channel = channels == 0 ? 0 : row % channels;
    if (channels != 0) row /= channels;
    std::int64_t at = value_of(tile.base);
    bool inside = true;
    for (auto axis = tile.windows->axes.rbegin(); axis != tile.windows->axes.rend(); ++axis) {
      const std::int64_t windows = value_of(axis->windows);
      const std::int64_t position =
          window % windows * axis->stride + row % axis->taps * axis->dilation - axis->pad;
      inside = inside && position >= 0 && position < value_of(axis->size);
      at += position * value_of(axis->memory_stride);
      window /= windows;
      row /= axis->taps;
    }
    if (channels != 0) row = channel;
    if (!inside) {
      const auto& outside = tile.windows->outside;
      return outside ? *element(outside->buffer, value_of(outside->index))
                     : number(nest_.buffers[tile.buffer].dtype, 0);
    }
    return *element(tile.buffer,
                    at + row * value_of(tile.row_stride) + window * value_of(tile.column_stride));
  }

  std::int64_t value_of(const SymExpr& expr) const { return expr.evaluate(symbols_); }
  bool holds(ScalarId mask) const { return mask == kNoScalar || get(mask).truth(); }
  const HostScalar& get(ScalarId id) const { return scalars_.at(id); }
  void set(ScalarId id, HostScalar value) {
    if (scalars_.size() <= id) scalars_.resize(id + 1);
    scalars_[id] = value;
  }

  const Nest& nest_;
  std::vector<InterpreterBuffer> buffers_;
  std::vector<std::vector<std::byte>> locals_;
  base::SymbolValues symbols_;
  std::vector<HostScalar> scalars_;
  std::int32_t status_ = 0;
};

}  // namespace

std::int32_t interpret(const Nest& nest, std::span<const InterpreterBuffer> buffers,
                       std::span<const std::int64_t> sizes, bool backwards) {
  return Machine(nest, buffers, sizes).run(backwards);
}

}  // namespace heddle::test
