#include "jit/footprint.h"

#include <algorithm>
#include <map>

#include "heddle/error.h"

namespace heddle::jit {

namespace {

using Kind = SymExpr::Kind;
using Ranges = std::map<Symbol, Interval>;

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return base::floordiv(SymExpr(a), SymExpr(b)).constant();
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

std::optional<Interval> range_of(const SymExpr& expr, const Ranges& ranges);

std::optional<Interval> joined(const SymExpr& expr, const Ranges& ranges,
                               std::optional<Interval> (*join)(Interval, Interval)) {
  std::optional<Interval> all;
  for (const SymExpr& operand : expr.operands()) {
    const auto range = range_of(operand, ranges);
    if (!range) return std::nullopt;
    all = all ? join(*all, *range) : range;
    if (!all) return std::nullopt;
  }
  return all;
}

/// The values that `expr` takes, and maybe others; nothing where they are not known.
std::optional<Interval> range_of(const SymExpr& expr, const Ranges& ranges) {
  if (expr.is_constant()) return Interval{expr.constant(), expr.constant()};
  if (expr.is_symbol()) {
    const auto found = ranges.find(expr.symbol());
    return found == ranges.end() ? std::nullopt : std::optional(found->second);
  }
  using Joined = std::optional<Interval>;
  switch (expr.kind()) {
    case Kind::Sum:
      return joined(expr, ranges, sum);
    case Kind::Product:
      return joined(expr, ranges, product);
    case Kind::FloorDiv:
      return joined(expr, ranges, quotient);
    case Kind::Mod:
      return joined(expr, ranges, remainder);
    case Kind::Min:
      return joined(expr, ranges, [](Interval a, Interval b) {
        return Joined({std::min(a.low, b.low), std::min(a.high, b.high)});
      });
    case Kind::Max:
      return joined(expr, ranges, [](Interval a, Interval b) {
        return Joined({std::max(a.low, b.low), std::max(a.high, b.high)});
      });
    default:
      return std::nullopt;
  }
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
class Footprint::Walk {
 public:
  Walk(Footprint& made, base::SymbolExprs sizes) : made_(made), sizes_(std::move(sizes)) {}

  void block(const Block& block) {
    for (const Stmt& stmt : block) std::visit([&](const auto& node) { visit(node); }, stmt.node);
  }

 private:
  void add_axis(Symbol axis, const SymExpr& extent) {
    bindings_.push_back({axis, 0, with_sizes(extent) - 1, true});
  }
  /// What divides by a size of 0 stays as it is: its range is not known then.
  SymExpr with_sizes(const SymExpr& expr) const {
    try {
      return expr.substitute(sizes_);
    } catch (const ShapeError&) {
      return expr;
    }
  }

  void note(NestBufferId buffer, bool writes, const SymExpr& index) {
    if (buffer < made_.whole_.size())
      made_.accesses_.push_back({buffer, writes, with_sizes(index), bindings_});
  }
  void note_unknown(NestBufferId buffer) {
    if (buffer < made_.whole_.size()) made_.unknown_[buffer] = true;
  }

  void visit(const LoadStmt& load) { note(load.buffer, false, load.index); }
  void visit(const StoreStmt& store) {
    note(store.buffer, true, store.index);
    if (store.combine) note(store.buffer, false, store.index);
  }
  void visit(const BindStmt& bind) {
    bindings_.push_back({bind.symbol, with_sizes(bind.low), with_sizes(bind.high), false});
  }
  void visit(const ForStmt& loop) {
    const std::size_t outer = bindings_.size();
    add_axis(loop.axis, loop.extent);
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
    add_axis(row, rows);
    add_axis(column, columns);
    add_axis(part, group);
    note(tile.buffer, false,
         tile.base + SymExpr(row) * tile.row_stride + SymExpr(column) * tile.column_stride +
             SymExpr(part));
    bindings_.resize(outer);
  }

  Footprint& made_;
  const base::SymbolExprs sizes_;
  std::vector<Binding> bindings_;
};

Footprint::Footprint(const Nest& nest, std::span<const std::int64_t> sizes)
    : parallel_(nest.parallel_axis) {
  base::SymbolExprs numbers;
  for (std::size_t k = 0; k < sizes.size(); ++k)
    numbers[Symbol{Symbol::Kind::Size, static_cast<std::uint32_t>(k)}] = sizes[k];
  for (std::uint32_t b = 0; b < nest.global_count(); ++b) {
    whole_.push_back({0, nest.buffers[b].count.evaluate_sizes(sizes) - 1});
    element_bytes_.push_back(static_cast<std::int64_t>(size_of(nest.buffers[b].dtype)));
  }
  unknown_.assign(whole_.size(), false);
  Walk(*this, std::move(numbers)).block(nest.body);
}

std::vector<Touched> Footprint::of(std::int64_t begin, std::int64_t end) const {
  std::vector<Touched> touched(whole_.size());
  for (const Access& access : accesses_) {
    Ranges ranges{{parallel_, {begin, end - 1}}};
    bool runs = begin < end;
    for (const Binding& binding : access.bindings) {
      const auto low = range_of(binding.low, ranges);
      const auto high = range_of(binding.high, ranges);
      if (!low || !high) continue;
      runs = runs && (!binding.is_axis || high->high >= low->low);
      ranges[binding.symbol] = {low->low, std::max(low->low, high->high)};
    }
    if (!runs) continue;
    const Interval& whole = whole_[access.buffer];
    Interval found = range_of(access.index, ranges).value_or(whole);
    found = {std::max(found.low, whole.low), std::min(found.high, whole.high)};
    (access.writes ? touched[access.buffer].written : touched[access.buffer].read).add(found);
  }
  for (std::size_t b = 0; b < touched.size(); ++b) {
    if (unknown_[b] && begin < end) touched[b].read = whole_[b];
    for (Interval* interval : {&touched[b].read, &touched[b].written})
      if (!interval->is_empty())
        *interval = {interval->low * element_bytes_[b],
                     (interval->high + 1) * element_bytes_[b] - 1};
  }
  return touched;
}

}  // namespace heddle::jit
