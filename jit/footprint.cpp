#include "jit/footprint.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace heddle::jit {

namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);  // b > 0
}

// What is known of an operation is joined to `a`, operand by operand; false: nothing is.

bool add(Interval& a, const Interval& b) {
  return !__builtin_add_overflow(a.low, b.low, &a.low) &&
         !__builtin_add_overflow(a.high, b.high, &a.high);
}

bool multiply(Interval& a, const Interval& b) {
  Interval made{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  for (const std::int64_t x : {a.low, a.high})
    for (const std::int64_t y : {b.low, b.high}) {
      std::int64_t value = 0;
      if (__builtin_mul_overflow(x, y, &value)) return false;
      made = {std::min(made.low, value), std::max(made.high, value)};
    }
  a = made;
  return true;
}

/// Of divisors that are one number above 0; nothing else is known.
bool divide(Interval& a, const Interval& b) {
  if (b.low != b.high || b.low <= 0) return false;
  a = {floor_div(a.low, b.low), floor_div(a.high, b.low)};
  return true;
}

bool take_remainder(Interval& a, const Interval& b) {
  if (b.low != b.high || b.low <= 0) return false;
  const std::int64_t first = floor_div(a.low, b.low);
  if (first != floor_div(a.high, b.low))
    a = {0, b.low - 1};
  else
    a = {a.low - first * b.low, a.high - first * b.low};
  return true;
}

bool take_smaller(Interval& a, const Interval& b) {
  a = {std::min(a.low, b.low), std::min(a.high, b.high)};
  return true;
}

bool take_larger(Interval& a, const Interval& b) {
  a = {std::max(a.low, b.low), std::max(a.high, b.high)};
  return true;
}

}  // namespace

void Interval::add(const Interval& other) {
  if (other.is_empty()) return;
  if (is_empty()) {
    *this = other;
    return;
  }
  low = std::min(low, other.low);
  high = std::max(high, other.high);
}

/// Collects the accesses of a block.
class Footprints::Walk {
 public:
  Walk(Footprints& made, Symbol parallel) : made_(made), parallel_(parallel) {}

  void block(const Block& block) {
    for (const Stmt& stmt : block) std::visit([&](const auto& node) { visit(node); }, stmt.node);
  }

  /// Of what is in scope, the number of the value of `expr`.
  std::uint32_t value_of(const SymExpr& expr) {
    if (expr.is_constant()) return number_of({.op = Op::Constant, .number = expr.constant()});
    if (expr.is_symbol()) return value_of(expr.symbol());
    Key key{.op = op_of(expr.kind())};
    for (const SymExpr& operand : expr.operands()) key.operands.push_back(value_of(operand));
    return number_of(std::move(key));
  }

 private:
  /// What tells a value from others.
  struct Key {
    Op op = Op::Unknown;
    std::int64_t number = 0;
    std::vector<std::uint32_t> operands{};
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Binding {
    Symbol symbol;
    std::uint32_t value;
    bool is_axis;
  };

  static Op op_of(SymExpr::Kind kind) {
    switch (kind) {
      case SymExpr::Kind::Sum:
        return Op::Sum;
      case SymExpr::Kind::Product:
        return Op::Product;
      case SymExpr::Kind::FloorDiv:
        return Op::FloorDiv;
      case SymExpr::Kind::Mod:
        return Op::Mod;
      case SymExpr::Kind::Min:
        return Op::Min;
      case SymExpr::Kind::Max:
        return Op::Max;
      default:
        return Op::Unknown;
    }
  }

  std::uint32_t number_of(Key key) {
    const auto next = static_cast<std::uint32_t>(made_.values_.size());
    const auto [known, is_new] = numbers_.try_emplace(std::move(key), next);
    if (is_new) append(known->first);
    return known->second;
  }

  void append(const Key& key) {
    Value value{.op = key.op, .number = key.number};
    value.varies =
        key.op == Op::Parallel || std::ranges::any_of(key.operands, [&](std::uint32_t operand) {
          return made_.values_[operand].varies;
        });
    value.first_operand = static_cast<std::uint32_t>(made_.operands_.size());
    value.operands = static_cast<std::uint32_t>(key.operands.size());
    made_.operands_.insert(made_.operands_.end(), key.operands.begin(), key.operands.end());
    const auto before = static_cast<std::uint32_t>(made_.values_.size());
    value.place = value.varies ? made_.varying_++ : before - made_.varying_;
    made_.values_.push_back(value);
  }

  std::uint32_t value_of(Symbol symbol) {
    if (symbol == parallel_) return number_of({.op = Op::Parallel});
    if (symbol.kind == Symbol::Kind::Size)
      return number_of({.op = Op::Size, .number = std::int64_t{symbol.id}});
    for (std::size_t k = bindings_.size(); k-- > 0;)
      if (bindings_[k].symbol == symbol) return bindings_[k].value;
    return number_of({.op = Op::Unknown});
  }

  void bind(Symbol symbol, const SymExpr& low, const SymExpr& high, bool is_axis) {
    const std::uint32_t from = value_of(low);
    const std::uint32_t to = value_of(high);
    bindings_.push_back({symbol, number_of({.op = Op::Span, .operands = {from, to}}), is_axis});
  }

  void note(NestBufferId buffer, bool writes, const SymExpr& index) {
    if (buffer >= made_.buffers_.size() || made_.buffers_[buffer].is_left_out) return;
    Access access{buffer, writes, value_of(index)};
    for (const Binding& binding : bindings_)
      if (binding.is_axis) access.axes.push_back(binding.value);
    if (seen_.insert(access).second) made_.accesses_.push_back(std::move(access));
  }
  void note_unknown(NestBufferId buffer) {
    if (buffer >= made_.buffers_.size() || made_.buffers_[buffer].is_left_out) return;
    made_.buffers_[buffer].is_unknown = true;
  }

  void visit(const LoadStmt& load) { note(load.buffer, false, load.index); }
  void visit(const StoreStmt& store) {
    note(store.buffer, true, store.index);
    if (store.combine) note(store.buffer, false, store.index);
  }
  void visit(const BindStmt& bound) { bind(bound.symbol, bound.low, bound.high, false); }
  void visit(const ForStmt& loop) {
    const std::size_t outer = bindings_.size();
    bind(loop.axis, 0, loop.extent - 1, true);
    block(*loop.body);
    bindings_.resize(outer);
  }
  void visit(const IfStmt& branch) {
    const std::size_t outer = bindings_.size();
    block(*branch.body);
    bindings_.resize(outer);
  }
  void visit(const ContractStmt& contract) {
    const auto a_stride = [](const ContractStmt::Run& run) { return run.a_stride; };
    const auto b_stride = [](const ContractStmt::Run& run) { return run.b_stride; };
    operand(contract.a, contract.rows, contract.depth, contract, a_stride);
    if (contract.panel_columns == 0) {
      operand(contract.b, contract.depth, contract.columns, contract, b_stride);
      return;
    }
    for (std::int64_t k = 0; k * contract.panel_columns < contract.tile_columns; ++k) {
      TileOperand panel = contract.b;
      panel.base += contract.panel_stride * k;
      const SymExpr columns =
          min(contract.panel_columns, max(0, contract.columns - k * contract.panel_columns));
      operand(panel, contract.depth, columns, contract, b_stride);
    }
  }
  void visit(const auto&) {}

  /// @param stride_of  of a run
  void operand(const TileOperand& tile, const SymExpr& rows, const SymExpr& columns,
               const ContractStmt& contract, auto&& stride_of) {
    if (tile.windows || tile.dequantised) {
      note_unknown(tile.buffer);
      if (tile.windows && tile.windows->outside) note_unknown(tile.windows->outside->buffer);
      if (tile.dequantised)
        for_each_part(*tile.dequantised,
                      [&](const Dequantised::Part& part) { note_unknown(part.buffer); });
      return;
    }
    constexpr std::uint32_t kOwn = 0xffffff00u;  // no axis of a nest
    const Symbol row{Symbol::Kind::Axis, kOwn};
    const Symbol column{Symbol::Kind::Axis, kOwn + 1};
    const Symbol part{Symbol::Kind::Axis, kOwn + 2};
    const std::size_t outer = bindings_.size();
    bind(row, 0, rows - 1, true);
    bind(column, 0, columns - 1, true);
    bind(part, 0, contract.gathers ? 0 : contract.group - 1, true);
    SymExpr index = tile.base + SymExpr(row) * tile.row_stride +
                    SymExpr(column) * tile.column_stride + SymExpr(part);
    for (std::size_t k = 0; k < contract.runs.size(); ++k) {
      const Symbol run{Symbol::Kind::Axis, kOwn + 3 + static_cast<std::uint32_t>(k)};
      bind(run, 0, contract.runs[k].count - 1, true);
      index += SymExpr(run) * stride_of(contract.runs[k]);
    }
    note(tile.buffer, false, index);
    bindings_.resize(outer);
  }

  Footprints& made_;
  const Symbol parallel_;
  std::vector<Binding> bindings_;  ///< outermost first
  std::map<Key, std::uint32_t> numbers_;
  std::set<Access> seen_;
};

Footprints::Footprints(const Nest& nest, const std::vector<bool>& left_out) {
  for (std::uint32_t b = 0; b < nest.global_count(); ++b)
    buffers_.push_back({.count = nest.buffers[b].count,
                        .element_bytes = static_cast<std::int64_t>(size_of(nest.buffers[b].dtype)),
                        .is_left_out = !left_out.empty() && left_out[b]});
  Walk walk(*this, nest.parallel_axis);
  walk.block(nest.body);
  for (Buffer& buffer : buffers_)
    if (!buffer.is_left_out) buffer.count_value = walk.value_of(buffer.count);
}

Footprint Footprints::at(std::span<const std::int64_t> sizes) const { return {*this, sizes}; }

/// Ranges of values, each for several pieces at once.
class Footprint::Ranges {
 public:
  using Op = Footprints::Op;
  using Value = Footprints::Value;

  /// @param fixed  of values that do not vary
  Ranges(const Footprints& all, std::span<const Range> fixed, std::span<const Interval> pieces)
      : all_(all), fixed_(fixed), count_(pieces.size()), varying_(all.varying_ * count_) {
    for (const Value& value : all.values_)
      if (value.varies) fill(value, varying_.data() + value.place * count_, count_, pieces);
  }

  const Range& at(std::uint32_t value, std::size_t piece) const {
    const Places ranges = places(value);
    return ranges.first[piece * ranges.step];
  }

  /// Those that do not vary.
  static std::vector<Range> fixed_of(const Footprints& all, std::span<const std::int64_t> sizes) {
    std::vector<Range> found(all.values_.size() - all.varying_);
    Ranges ranges(all, found);
    for (const Value& value : all.values_) {
      Range& range = found[value.place];
      if (value.op == Op::Size) {
        const std::int64_t size = sizes[static_cast<std::size_t>(value.number)];
        range = {{size, size}, true};
      } else if (!value.varies) {
        ranges.fill(value, &range, 1, {});
      }
    }
    return found;
  }

 private:
  /// Of one value: by piece, or one for all of them.
  struct Places {
    const Range* first;
    std::size_t step;
  };

  Ranges(const Footprints& all, std::span<const Range> fixed)
      : all_(all), fixed_(fixed), count_(1) {}

  Places places(std::uint32_t number) const {
    const Value& value = all_.values_[number];
    if (value.varies) return {varying_.data() + value.place * count_, 1};
    return {fixed_.data() + value.place, 0};
  }

  /// The values that `value` takes, and maybe others, where they are known.
  void fill(const Value& value, Range* out, std::size_t count,
            std::span<const Interval> pieces) const {
    const std::span<const std::uint32_t> operands = all_.operands_of(value);
    switch (value.op) {
      case Op::Constant:
        out[0] = {{value.number, value.number}, true};
        return;
      case Op::Parallel:
        for (std::size_t k = 0; k < count; ++k) out[k] = {pieces[k], true};
        return;
      case Op::Size:
      case Op::Unknown:
        return;
      case Op::Span:
        return span(places(operands[0]), places(operands[1]), out, count);
      case Op::Sum:
        return join<add>(operands, out, count);
      case Op::Product:
        return join<multiply>(operands, out, count);
      case Op::FloorDiv:
        return join<divide>(operands, out, count);
      case Op::Mod:
        return join<take_remainder>(operands, out, count);
      case Op::Min:
        return join<take_smaller>(operands, out, count);
      case Op::Max:
        return join<take_larger>(operands, out, count);
    }
  }

  static void span(Places low, Places high, Range* out, std::size_t count) {
    for (std::size_t k = 0; k < count; ++k) {
      const Range& from = low.first[k * low.step];
      const Range& to = high.first[k * high.step];
      if (from.is_known && to.is_known)
        out[k] = {{from.values.low, std::max(from.values.low, to.values.high)},
                  true,
                  to.values.high < from.values.low};
    }
  }

  template <bool (*kJoin)(Interval&, const Interval&)>
  void join(std::span<const std::uint32_t> operands, Range* out, std::size_t count) const {
    const Places first = places(operands[0]);
    for (std::size_t k = 0; k < count; ++k) {
      const Range& from = first.first[k * first.step];
      out[k] = {from.values, from.is_known};
    }
    for (const std::uint32_t operand : operands.subspan(1)) {
      const Places more = places(operand);
      for (std::size_t k = 0; k < count; ++k) {
        const Range& other = more.first[k * more.step];
        out[k].is_known = out[k].is_known && other.is_known && kJoin(out[k].values, other.values);
      }
    }
  }

  const Footprints& all_;
  std::span<const Range> fixed_;
  std::size_t count_;
  std::vector<Range> varying_;  ///< by value and piece
};

Footprint::Footprint(const Footprints& all, std::span<const std::int64_t> sizes)
    : all_(all), fixed_(Ranges::fixed_of(all, sizes)) {
  for (const Footprints::Buffer& buffer : all.buffers_)
    whole_.push_back({0, buffer.is_left_out ? -1 : count_of(buffer, sizes) - 1});
}

/// Of a buffer's elements. What is not known of a range may be of a number.
std::int64_t Footprint::count_of(const Footprints::Buffer& buffer,
                                 std::span<const std::int64_t> sizes) const {
  const Range& count = fixed_[all_.values_[buffer.count_value].place];
  const bool is_number = count.is_known && count.values.low == count.values.high;
  return is_number ? count.values.low : buffer.count.evaluate_sizes(sizes);
}

std::vector<Touched> Footprint::of(std::int64_t begin, std::int64_t end) const {
  const Interval piece{begin, end - 1};
  return of({&piece, 1});
}

std::vector<Touched> Footprint::of(std::span<const Interval> pieces) const {
  const Ranges ranges(all_, fixed_, pieces);
  const std::size_t buffers = whole_.size();
  std::vector<Touched> all(pieces.size() * buffers);
  for (const Footprints::Access& access : all_.accesses_) {
    const Interval& whole = whole_[access.buffer];
    for (std::size_t k = 0; k < pieces.size(); ++k) {
      const auto is_empty = [&](std::uint32_t axis) { return ranges.at(axis, k).is_empty; };
      if (pieces[k].is_empty() || std::ranges::any_of(access.axes, is_empty)) continue;
      const Range& index = ranges.at(access.index, k);
      Interval found = index.is_known ? index.values : whole;
      found = {std::max(found.low, whole.low), std::min(found.high, whole.high)};
      Touched& touched = all[k * buffers + access.buffer];
      (access.writes ? touched.written : touched.read).add(found);
    }
  }
  for (std::size_t k = 0; k < pieces.size(); ++k)
    if (!pieces[k].is_empty()) finish(std::span(all).subspan(k * buffers, buffers));
  return all;
}

/// Elements become bytes, with all that is read in ways that are not followed.
void Footprint::finish(std::span<Touched> touched) const {
  for (std::size_t b = 0; b < touched.size(); ++b) {
    const std::int64_t bytes = all_.buffers_[b].element_bytes;
    if (all_.buffers_[b].is_unknown) touched[b].read = whole_[b];
    for (Interval* interval : {&touched[b].read, &touched[b].written})
      if (!interval->is_empty())
        *interval = {interval->low * bytes, (interval->high + 1) * bytes - 1};
  }
}

}  // namespace heddle::jit
