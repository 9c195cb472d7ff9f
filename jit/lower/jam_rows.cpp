#include "jit/lower/jam_rows.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "jit/lower/copies.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

/// Statements that rows share, at least.
constexpr std::size_t kLeastShared = 4;
/// Statements that are repeated, at most: the values of several rows have to fit into registers.
constexpr std::size_t kMostRepeated = 40;

class RowJammer {
 public:
  RowJammer(NestBuilder& builder, Symbol row) : builder_(builder), symbols_{row}, row_(row) {}

  /// Finds what depends on the row. False where jamming would not pay, or would store in another order.
  bool pays(Block& body) {
    std::set<Symbol> shared_places;
    std::size_t shared = 0;
    std::size_t repeated = 0;
    bool looks_up = false;
    for (Stmt& statement : body) {
      if (std::holds_alternative<ForStmt>(statement.node) ||
          std::holds_alternative<IfStmt>(statement.node))
        return false;
      const bool is_of_row = depends(statement);
      of_row_.push_back(is_of_row);
      ++(is_of_row ? repeated : shared);
      if (const auto* bind = std::get_if<BindStmt>(&statement.node); bind != nullptr && !is_of_row)
        shared_places.insert(bind->symbol);
      if (const auto* load = std::get_if<LoadStmt>(&statement.node); load != nullptr && is_of_row)
        looks_up = looks_up || mentions(load->index, shared_places);
      if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
        if (!is_of_row || store->combine) return false;
        std::vector<Symbol> symbols;
        store->index.collect_symbols(symbols);
        for (const Symbol symbol : symbols)
          if (symbol.kind == Symbol::Kind::Temp) return false;
      }
    }
    return looks_up && shared >= kLeastShared && repeated <= kMostRepeated;
  }

  Block run(Block body, std::int64_t count) {
    Block jammed;
    std::vector<CopyNames> names(static_cast<std::size_t>(count));
    for (std::int64_t j = 1; j < count; ++j)
      names[static_cast<std::size_t>(j)].symbols[row_] = SymExpr(row_) + j;
    // Behind all loads, those of a row side by side.
    std::vector<Block> stores(static_cast<std::size_t>(count));
    for (std::size_t k = 0; k < body.size(); ++k) {
      const bool is_store = std::holds_alternative<StoreStmt>(body[k].node);
      Block copies;
      for (std::int64_t j = 1; of_row_[k] && j < count; ++j)
        copies.push_back(copy_of(builder_, body[k], names[static_cast<std::size_t>(j)]));
      (is_store ? stores[0] : jammed).push_back(std::move(body[k]));
      for (std::size_t j = 0; j < copies.size(); ++j)
        (is_store ? stores[j + 1] : jammed).push_back(std::move(copies[j]));
    }
    for (Block& row : stores) std::ranges::move(row, std::back_inserter(jammed));
    return jammed;
  }

 private:
  static bool mentions(const SymExpr& expr, const std::set<Symbol>& symbols) {
    return std::ranges::any_of(symbols, [&](Symbol symbol) { return expr.mentions(symbol); });
  }

  bool depends(Stmt& statement) {
    bool found = false;
    std::visit(
        [&](auto& node) {
          visit_uses(node, [&](ScalarId id) { found = found || scalars_.contains(id); });
          visit_exprs(node, [&](SymExpr& expr) { found = found || mentions(expr, symbols_); });
        },
        statement.node);
    if (!found) return false;
    std::visit(
        [&](auto& node) { visit_definitions(node, [&](ScalarId id) { scalars_.insert(id); }); },
        statement.node);
    if (const auto* bind = std::get_if<BindStmt>(&statement.node)) symbols_.insert(bind->symbol);
    return true;
  }

  NestBuilder& builder_;
  std::set<Symbol> symbols_;  ///< that depend on the row
  std::set<ScalarId> scalars_;
  std::vector<bool> of_row_;  ///< by statement
  const Symbol row_;
};

}  // namespace

bool jam_rows(NestBuilder& builder, Block& body, Symbol row, std::int64_t count) {
  RowJammer jammer(builder, row);
  if (!jammer.pays(body)) return false;
  body = jammer.run(std::move(body), count);
  return true;
}

}  // namespace heddle::jit
