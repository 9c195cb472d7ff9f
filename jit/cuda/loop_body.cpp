#include "jit/cuda/loop_body.h"

#include <algorithm>

namespace heddle::jit::cuda {

std::set<Symbol> bound_in(const Block& body) {
  std::set<Symbol> bound;
  for (const Stmt& statement : body)
    if (const auto* bind = std::get_if<BindStmt>(&statement.node)) bound.insert(bind->symbol);
  return bound;
}

bool is_scalar(const Stmt& statement) {
  return !std::holds_alternative<ForStmt>(statement.node) &&
         !std::holds_alternative<IfStmt>(statement.node) &&
         !std::holds_alternative<ContractStmt>(statement.node);
}

std::map<NestBufferId, Uses> uses_of(const Block& body) {
  std::map<NestBufferId, Uses> uses;
  for (const Stmt& statement : body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) ++uses[load->buffer].loads;
    if (const auto* store = std::get_if<StoreStmt>(&statement.node)) ++uses[store->buffer].stores;
  }
  return uses;
}

std::optional<SymExpr> first_neighbour(Symbol axis, const Block& body, const SymExpr& index) {
  const auto linear = index.linear_in(axis);
  if (!linear || !linear->coefficient.is_constant(1)) return std::nullopt;
  for (const Symbol symbol : bound_in(body))
    if (index.mentions(symbol)) return std::nullopt;
  return linear->rest;
}

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

}  // namespace heddle::jit::cuda
