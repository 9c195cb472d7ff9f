#include "jit/footprint.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace heddle::jit {

namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);  // b > 0
}

std::optional<Interval> sum(Interval a, Interval b) {
  Interval made;
  if (__builtin_add_overflow(a.low, b.low, &made.low) ||
      __builtin_add_overflow(a.high, b.high, &made.high))
    return std::nullopt;
  return made;
}

std::optional<Interval> product(Interval a, Interval b) {
  std::optional<Interval> made;
  for (const std::int64_t x : {a.low, a.high})
    for (const std::int64_t y : {b.low, b.high}) {
      std::int64_t value = 0;
      if (__builtin_mul_overflow(x, y, &value)) return std::nullopt;
      if (!made) made = {value, value};
      made->add({value, value});
    }
  return made;
}

/// Of divisors that are one number above 0; nothing else is known.
std::optional<Interval> quotient(Interval a, Interval b) {
  if (b.low != b.high || b.low <= 0) return std::nullopt;
  return Interval{floor_div(a.low, b.low), floor_div(a.high, b.low)};
}

std::optional<Interval> remainder(Interval a, Interval b) {
  if (b.low != b.high || b.low <= 0) return std::nullopt;
  const std::int64_t first = floor_div(a.low, b.low);
  if (first != floor_div(a.high, b.low)) return Interval{0, b.low - 1};
  return Interval{a.low - first * b.low, a.high - first * b.low};
}

std::optional<Interval> smaller(Interval a, Interval b) {
  return Interval{std::min(a.low, b.low), std::min(a.high, b.high)};
}

std::optional<Interval> larger(Interval a, Interval b) {
  return Interval{std::max(a.low, b.low), std::max(a.high, b.high)};
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

 private:
  using Op = Value::Op;
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

  std::uint32_t number_of(Value value) {
    const auto next = static_cast<std::uint32_t>(made_.values_.size());
    const auto [known, is_new] = numbers_.try_emplace(value, next);
    if (!is_new) return known->second;
    varies_.push_back(value.op == Op::Parallel ||
                      std::ranges::any_of(value.operands,
                                          [&](std::uint32_t operand) { return varies_[operand]; }));
    if (varies_.back()) made_.varying_.push_back(next);
    made_.values_.push_back(std::move(value));
    return next;
  }

  std::uint32_t value_of(Symbol symbol) {
    if (symbol == parallel_) return number_of({.op = Op::Parallel});
    if (symbol.kind == Symbol::Kind::Size)
      return number_of({.op = Op::Size, .number = std::int64_t{symbol.id}});
    for (std::size_t k = bindings_.size(); k-- > 0;)
      if (bindings_[k].symbol == symbol) return bindings_[k].value;
    return number_of({.op = Op::Unknown});
  }

  std::uint32_t value_of(const SymExpr& expr) {
    if (expr.is_constant()) return number_of({.op = Op::Constant, .number = expr.constant()});
    if (expr.is_symbol()) return value_of(expr.symbol());
    Value value{.op = op_of(expr.kind())};
    for (const SymExpr& operand : expr.operands()) value.operands.push_back(value_of(operand));
    return number_of(std::move(value));
  }

  void bind(Symbol symbol, const SymExpr& low, const SymExpr& high, bool is_axis) {
    const std::uint32_t from = value_of(low);
    const std::uint32_t to = value_of(high);
    bindings_.push_back({symbol, number_of({.op = Op::Span, .operands = {from, to}}), is_axis});
  }

  void note(NestBufferId buffer, bool writes, const SymExpr& index) {
    if (buffer >= made_.buffers_.size()) return;
    Access access{buffer, writes, value_of(index)};
    for (const Binding& binding : bindings_)
      if (binding.is_axis) access.axes.push_back(binding.value);
    if (seen_.insert(access).second) made_.accesses_.push_back(std::move(access));
  }
  void note_unknown(NestBufferId buffer) {
    if (buffer < made_.buffers_.size()) made_.buffers_[buffer].is_unknown = true;
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
    operand(contract.a, contract.rows, contract.depth, contract.group);
    operand(contract.b, contract.depth, contract.columns, contract.group);
  }
  void visit(const auto&) {}

  void operand(const TileOperand& tile, const SymExpr& rows, const SymExpr& columns,
               std::int64_t group) {
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
    bind(part, 0, group - 1, true);
    note(tile.buffer, false,
         tile.base + SymExpr(row) * tile.row_stride + SymExpr(column) * tile.column_stride +
             SymExpr(part));
    bindings_.resize(outer);
  }

  Footprints& made_;
  const Symbol parallel_;
  std::vector<Binding> bindings_;  ///< outermost first
  std::map<Value, std::uint32_t> numbers_;
  std::vector<bool> varies_;  ///< by value
  std::set<Access> seen_;
};

Footprints::Footprints(const Nest& nest) {
  for (std::uint32_t b = 0; b < nest.global_count(); ++b)
    buffers_.push_back(
        {.count = nest.buffers[b].count,
         .element_bytes = static_cast<std::int64_t>(size_of(nest.buffers[b].dtype))});
  Walk(*this, nest.parallel_axis).block(nest.body);
}

Footprint Footprints::at(std::span<const std::int64_t> sizes) const { return {*this, sizes}; }

Footprint::Footprint(const Footprints& all, std::span<const std::int64_t> sizes) : all_(all) {
  for (const Footprints::Buffer& buffer : all.buffers_)
    whole_.push_back({0, buffer.count.evaluate_sizes(sizes) - 1});
  ranges_.reserve(all.values_.size());
  for (const Footprints::Value& value : all.values_) ranges_.push_back(range_of(value, sizes));
}

/// The values that `value` takes, and maybe others, where they are known.
Footprint::Range Footprint::range_of(const Footprints::Value& value,
                                     std::span<const std::int64_t> sizes) const {
  using Op = Footprints::Value::Op;
  std::optional<Interval> (*join)(Interval, Interval) = nullptr;
  switch (value.op) {
    case Op::Constant:
      return {{value.number, value.number}, true};
    case Op::Size: {
      const std::int64_t size = sizes[static_cast<std::size_t>(value.number)];
      return {{size, size}, true};
    }
    case Op::Parallel:
      return {iterations_, true};
    case Op::Unknown:
      return {};
    case Op::Span: {
      const Range& low = ranges_[value.operands[0]];
      const Range& high = ranges_[value.operands[1]];
      if (!low.is_known || !high.is_known) return {};
      return {{low.values.low, std::max(low.values.low, high.values.high)},
              true,
              high.values.high < low.values.low};
    }
    case Op::Sum:
      join = sum;
      break;
    case Op::Product:
      join = product;
      break;
    case Op::FloorDiv:
      join = quotient;
      break;
    case Op::Mod:
      join = remainder;
      break;
    case Op::Min:
      join = smaller;
      break;
    case Op::Max:
      join = larger;
      break;
  }
  std::optional<Interval> all;
  for (const std::uint32_t operand : value.operands) {
    if (!ranges_[operand].is_known) return {};
    all = all ? join(*all, ranges_[operand].values) : ranges_[operand].values;
    if (!all) return {};
  }
  return {*all, true};
}

std::vector<Touched> Footprint::of(std::int64_t begin, std::int64_t end) {
  std::vector<Touched> touched(whole_.size());
  if (begin >= end) return touched;
  iterations_ = {begin, end - 1};
  for (const std::uint32_t value : all_.varying_)
    ranges_[value] = range_of(all_.values_[value], {});
  for (const Footprints::Access& access : all_.accesses_) {
    if (std::ranges::any_of(access.axes,
                            [&](std::uint32_t axis) { return ranges_[axis].is_empty; }))
      continue;
    const Interval& whole = whole_[access.buffer];
    const Range& index = ranges_[access.index];
    Interval found = index.is_known ? index.values : whole;
    found = {std::max(found.low, whole.low), std::min(found.high, whole.high)};
    (access.writes ? touched[access.buffer].written : touched[access.buffer].read).add(found);
  }
  for (std::size_t b = 0; b < touched.size(); ++b) {
    const std::int64_t bytes = all_.buffers_[b].element_bytes;
    if (all_.buffers_[b].is_unknown) touched[b].read = whole_[b];
    for (Interval* interval : {&touched[b].read, &touched[b].written})
      if (!interval->is_empty())
        *interval = {interval->low * bytes, (interval->high + 1) * bytes - 1};
  }
  return touched;
}

}  // namespace heddle::jit
