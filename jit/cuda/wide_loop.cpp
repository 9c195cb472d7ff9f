#include "jit/cuda/wide_loop.h"

#include <algorithm>
#include <set>

#include "jit/cuda/loop_body.h"

namespace heddle::jit::cuda {
namespace {

/// Of the largest elements that one read takes: of wider ones each half would touch all sectors of memory.
constexpr std::int64_t kMostBytes = 16;
constexpr std::int64_t kMostWidth = 8;
constexpr std::int64_t kMostOfTile = 4;
/// Statements of all iterations that a thread takes at once: each is text, and registers.
constexpr std::int64_t kMostStatements = 256;

}  // namespace

std::int64_t period_of(const Nest& nest, const ForStmt& loop) {
  std::int64_t period = 0;
  bool fits = true;
  const auto look = [&](auto& self, const SymExpr& expr) -> void {
    if (expr.is_constant() || expr.is_symbol() || !expr.mentions(loop.axis)) return;
    const std::vector<SymExpr> operands = expr.operands();
    const bool divides =
        expr.kind() == SymExpr::Kind::FloorDiv || expr.kind() == SymExpr::Kind::Mod;
    if (divides && operands[0].is_symbol()) {
      const std::int64_t divisor = operands[1].as_constant().value_or(0);
      fits = fits && divisor > 0 && (period == 0 || period == divisor);
      period = divisor;
      return;
    }
    for (const SymExpr& operand : operands) self(self, operand);
  };
  const auto touch = [&](NestBufferId buffer, const SymExpr& index) {
    if (nest.buffers[buffer].scope == NestBuffer::Scope::Global) look(look, index);
  };
  for (const Stmt& statement : *loop.body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) touch(load->buffer, load->index);
    if (const auto* store = std::get_if<StoreStmt>(&statement.node))
      touch(store->buffer, store->index);
  }
  return fits ? period : 0;
}

namespace {
/// Beyond the numbers that a nest's own axes have.
constexpr std::uint32_t kOwnAxes = 10000;
}  // namespace

Symbol row_of_period(const ForStmt& loop) {
  return {Symbol::Kind::Axis, kOwnAxes + 2 * loop.axis.id};
}
Symbol column_of_period(const ForStmt& loop) {
  return {Symbol::Kind::Axis, kOwnAxes + 2 * loop.axis.id + 1};
}

base::Facts facts_of_period(const Nest& nest, const ForStmt& loop, std::int64_t period) {
  base::Facts facts = nest.facts;
  facts.set_range(row_of_period(loop), 0, SymExpr(std::int64_t{1} << 32));
  facts.set_range(column_of_period(loop), 0, SymExpr(period - 1));
  return facts;
}

SymExpr by_period(const Nest& nest, const ForStmt& loop, std::int64_t period,
                  const SymExpr& index) {
  const SymExpr place = SymExpr(row_of_period(loop)) * period + column_of_period(loop);
  return index.substitute({{loop.axis, place}}).simplify(facts_of_period(nest, loop, period));
}

std::optional<NeighbourPlaces> neighbour_places(const Nest& nest, const ForStmt& loop,
                                                std::int64_t period, const SymExpr& index) {
  if (const auto first = first_neighbour(loop, index))
    return NeighbourPlaces{*first, period, period};
  if (period == 0 || index.linear_in(loop.axis)) return std::nullopt;
  for (const Symbol symbol : bound_in(*loop.body))
    if (index.mentions(symbol)) return std::nullopt;
  const Symbol row = row_of_period(loop), column = column_of_period(loop);
  const SymExpr place = by_period(nest, loop, period, index);
  const auto by_column = place.linear_in(column);
  if (!by_column || !by_column->coefficient.is_constant(1)) return std::nullopt;
  const auto by_row = by_column->rest.linear_in(row);
  if (!by_row || by_row->coefficient.mentions(row)) return std::nullopt;
  return NeighbourPlaces{by_row->rest, by_row->coefficient, period};
}

std::optional<WideLoop> wide_loop(const Nest& nest, const ForStmt& loop, std::uint32_t threads,
                                  const std::function<bool(const SymExpr&)>& is_there) {
  if (loop.kind != ForStmt::Kind::Vector || !loop.carried.empty() ||
      !std::ranges::all_of(*loop.body, is_scalar))
    return std::nullopt;
  WideLoop wide;
  std::int64_t most = 0;
  const auto take = [&](NestBufferId buffer) {
    most = std::max(most, static_cast<std::int64_t>(size_of(nest.buffers[buffer].dtype)));
  };
  const std::set<Symbol> bound = bound_in(*loop.body);
  // What is read or written one by one lies side by side for neighbouring threads only if these have one iteration each.
  bool one_by_one = false;
  // Those of a tile in shared memory may lie in columns.
  const std::int64_t period = period_of(nest, loop);
  const auto leave = [&](NestBufferId buffer, const SymExpr& index) {
    if (period != 0 && nest.buffers[buffer].scope == NestBuffer::Scope::Local) return;
    one_by_one = one_by_one || index.mentions(loop.axis) ||
                 std::ranges::any_of(bound, [&](Symbol symbol) { return index.mentions(symbol); });
  };
  const auto fits = [&](NestBufferId buffer, const SymExpr& index, ScalarId mask) {
    const bool in_tile = period != 0 && nest.buffers[buffer].scope == NestBuffer::Scope::Local;
    return !in_tile && mask == kNoScalar && is_there(index) &&
           neighbour_places(nest, loop, period, index).has_value();
  };
  auto uses = uses_of(*loop.body);
  for (const Stmt& statement : *loop.body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
      if (uses[load->buffer].stores == 0 && fits(load->buffer, load->index, load->mask)) {
        wide.loads.push_back(load);
        take(load->buffer);
      } else {
        leave(load->buffer, load->index);
      }
    }
    if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
      if (!store->combine && uses[store->buffer].loads == 0 &&
          fits(store->buffer, store->index, store->mask)) {
        wide.stores.push_back(store);
        take(store->buffer);
      } else {
        leave(store->buffer, store->index);
      }
    }
  }
  if (most == 0 || one_by_one) return std::nullopt;
  std::int64_t width = std::min(kMostWidth, kMostBytes / most);
  const auto count = static_cast<std::int64_t>(loop.body->size());
  const std::optional<std::int64_t> extent = loop.extent.as_constant();
  while (width > 1 && (width * count > kMostStatements || (extent && *extent < width * threads)))
    width /= 2;
  // Of wider elements than words those of a column would share banks.
  if (period != 0 && most > kMostOfTile) return std::nullopt;
  while (period != 0 && period % width != 0) width /= 2;
  const auto misaligned = [&](const SymExpr& index) {
    const NeighbourPlaces places = *neighbour_places(nest, loop, period, index);
    return is_misaligned(places.first, width) ||
           (places.period != 0 && is_misaligned(places.stride, width));
  };
  while (width > 1 &&
         (std::ranges::any_of(wide.loads, misaligned, [](auto* load) { return load->index; }) ||
          std::ranges::any_of(wide.stores, misaligned, [](auto* store) { return store->index; })))
    width /= 2;
  wide.width = static_cast<int>(width);
  wide.period = period;
  wide.bytes = static_cast<int>(width * most);
  return width > 1 ? std::optional(wide) : std::nullopt;
}

}  // namespace heddle::jit::cuda
