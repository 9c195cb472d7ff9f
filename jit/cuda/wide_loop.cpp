#include "jit/cuda/wide_loop.h"

#include <algorithm>
#include <map>
#include <set>

namespace heddle::jit::cuda {
namespace {

/// Of the largest elements that one read takes: of wider ones each half would touch all sectors of memory.
constexpr std::int64_t kMostBytes = 16;
constexpr std::int64_t kMostWidth = 8;
/// Statements of all iterations that a thread takes at once: each is text, and registers.
constexpr std::int64_t kMostStatements = 256;

/// Symbols that the body binds.
std::set<Symbol> bound_in(const Block& body) {
  std::set<Symbol> bound;
  for (const Stmt& statement : body)
    if (const auto* bind = std::get_if<BindStmt>(&statement.node)) bound.insert(bind->symbol);
  return bound;
}

/// Whether places that are known to be no multiple of `width` are among those of an expression: rows of an odd length, or
/// what begins at an odd place. Of sizes that are not known nothing is.
bool is_misaligned(const SymExpr& place, std::int64_t width) {
  switch (place.kind()) {
    case SymExpr::Kind::Constant:
      return place.constant() % width != 0;
    case SymExpr::Kind::Sum:
      return std::ranges::any_of(
          place.operands(), [width](const SymExpr& term) { return is_misaligned(term, width); });
    case SymExpr::Kind::Product:
      return std::ranges::all_of(place.operands(), [width](const SymExpr& factor) {
        return is_misaligned(factor, width);
      });
    case SymExpr::Kind::Symbol:
      return place.symbol().kind != Symbol::Kind::Size;
    default:
      return true;
  }
}

/// How often a body loads from a buffer and stores to it.
struct Uses {
  int loads = 0;
  int stores = 0;
};
std::map<NestBufferId, Uses> uses_of(const Block& body) {
  std::map<NestBufferId, Uses> uses;
  for (const Stmt& statement : body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) ++uses[load->buffer].loads;
    if (const auto* store = std::get_if<StoreStmt>(&statement.node)) ++uses[store->buffer].stores;
  }
  return uses;
}

}  // namespace

bool is_scalar(const Stmt& statement) {
  return !std::holds_alternative<ForStmt>(statement.node) &&
         !std::holds_alternative<IfStmt>(statement.node) &&
         !std::holds_alternative<ContractStmt>(statement.node);
}

std::optional<SymExpr> first_of_neighbours(const ForStmt& loop, const SymExpr& index) {
  const auto linear = index.linear_in(loop.axis);
  if (!linear || !linear->coefficient.is_constant(1)) return std::nullopt;
  for (const Symbol symbol : bound_in(*loop.body))
    if (linear->rest.mentions(symbol)) return std::nullopt;
  return linear->rest;
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
  const auto leave = [&](const SymExpr& index) {
    one_by_one = one_by_one || index.mentions(loop.axis) ||
                 std::ranges::any_of(bound, [&](Symbol symbol) { return index.mentions(symbol); });
  };
  const auto fits = [&](const SymExpr& index, ScalarId mask) {
    return mask == kNoScalar && is_there(index) && first_of_neighbours(loop, index).has_value();
  };
  auto uses = uses_of(*loop.body);
  for (const Stmt& statement : *loop.body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
      if (uses[load->buffer].stores == 0 && fits(load->index, load->mask)) {
        wide.loads.push_back(load);
        take(load->buffer);
      } else {
        leave(load->index);
      }
    }
    if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
      if (!store->combine && uses[store->buffer].loads == 0 && uses[store->buffer].stores == 1 &&
          fits(store->index, store->mask)) {
        wide.stores.push_back(store);
        take(store->buffer);
      } else {
        leave(store->index);
      }
    }
  }
  if (most == 0 || one_by_one) return std::nullopt;
  std::int64_t width = std::min(kMostWidth, kMostBytes / most);
  const auto count = static_cast<std::int64_t>(loop.body->size());
  const std::optional<std::int64_t> extent = loop.extent.as_constant();
  while (width > 1 && (width * count > kMostStatements || (extent && *extent < width * threads)))
    width /= 2;
  const auto misaligned = [&](const SymExpr& index) {
    return is_misaligned(*first_of_neighbours(loop, index), width);
  };
  while (width > 1 &&
         (std::ranges::any_of(wide.loads, misaligned, [](auto* load) { return load->index; }) ||
          std::ranges::any_of(wide.stores, misaligned, [](auto* store) { return store->index; })))
    width /= 2;
  wide.width = static_cast<int>(width);
  wide.bytes = static_cast<int>(width * most);
  return width > 1 ? std::optional(wide) : std::nullopt;
}

}  // namespace heddle::jit::cuda
