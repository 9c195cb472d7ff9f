#include "jit/lower/jam_rows.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
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
/// The same of the terms of sums.
constexpr std::size_t kMostInSum = 10;

/// What statements of a body come to for each row, found one after the other.
class RowUses {
 public:
  explicit RowUses(Symbol row) : symbols_{row} {}

  /// Whether what the statement does depends on the row. Of a loop, whether anything in it does.
  bool depends(Stmt& statement) {
    bool found = false;
    std::visit(
        [&](auto& node) {
          visit_uses(node, [&](ScalarId id) { found = found || scalars_.contains(id); });
          visit_exprs(node, [&](SymExpr& expr) { found = found || mentions(expr, symbols_); });
        },
        statement.node);
    if (found) add(statement);
    return found;
  }

  /// Says that what the statement defines does.
  void add(Stmt& statement) {
    std::visit(
        [&](auto& node) { visit_definitions(node, [&](ScalarId id) { scalars_.insert(id); }); },
        statement.node);
    if (const auto* bind = std::get_if<BindStmt>(&statement.node)) symbols_.insert(bind->symbol);
  }

  static bool mentions(const SymExpr& expr, const std::set<Symbol>& symbols) {
    return std::ranges::any_of(symbols, [&](Symbol symbol) { return expr.mentions(symbol); });
  }

 private:
  std::set<Symbol> symbols_;  ///< that depend on the row
  std::set<ScalarId> scalars_;
};

/// The names of what the rows behind the first one make.
std::vector<CopyNames> names_of_rows(Symbol row, std::int64_t count) {
  std::vector<CopyNames> names(static_cast<std::size_t>(count));
  for (std::int64_t j = 1; j < count; ++j)
    names[static_cast<std::size_t>(j)].symbols[row] = SymExpr(row) + j;
  return names;
}

class RowJammer {
 public:
  RowJammer(NestBuilder& builder, Symbol row) : builder_(builder), uses_(row), row_(row) {}

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
      const bool is_of_row = uses_.depends(statement);
      of_row_.push_back(is_of_row);
      ++(is_of_row ? repeated : shared);
      if (const auto* bind = std::get_if<BindStmt>(&statement.node); bind != nullptr && !is_of_row)
        shared_places.insert(bind->symbol);
      if (const auto* load = std::get_if<LoadStmt>(&statement.node); load != nullptr && is_of_row)
        looks_up = looks_up || RowUses::mentions(load->index, shared_places);
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
    std::vector<CopyNames> names = names_of_rows(row_, count);
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
  NestBuilder& builder_;
  RowUses uses_;
  std::vector<bool> of_row_;  ///< by statement
  const Symbol row_;
};

class SumJammer {
 public:
  SumJammer(NestBuilder& builder, Symbol row) : builder_(builder), uses_(row), row_(row) {}

  /// Finds what depends on the row, in the body and in its loop.
  bool pays(Block& body) {
    std::size_t loops = 0;
    for (Stmt& statement : body) {
      if (std::holds_alternative<IfStmt>(statement.node)) return false;
      if (auto* loop = std::get_if<ForStmt>(&statement.node); loop != nullptr) {
        if (++loops > 1 || !pays(*loop)) return false;
        uses_.add(statement);
        of_row_.push_back(true);
        continue;
      }
      of_row_.push_back(uses_.depends(statement));
      const auto* store = std::get_if<StoreStmt>(&statement.node);
      if (store != nullptr && (!of_row_.back() || store->combine)) return false;
    }
    return loops == 1;
  }

  Block run(Block body, std::int64_t count) {
    names_ = names_of_rows(row_, count);
    Block jammed;
    for (std::size_t k = 0; k < body.size(); ++k) {
      if (auto* loop = std::get_if<ForStmt>(&body[k].node)) {
        jam(*loop);
        jammed.push_back(std::move(body[k]));
        continue;
      }
      Block copies;
      if (of_row_[k]) copies = copies_of(std::span(&body[k], 1));
      jammed.push_back(std::move(body[k]));
      std::ranges::move(copies, std::back_inserter(jammed));
    }
    return jammed;
  }

 private:
  bool pays(ForStmt& loop) {
    if (loop.kind != ForStmt::Kind::Serial || !loop.carried.empty() || loop.reductions.empty())
      return false;
    bool shares = false;
    std::size_t repeated = 0;
    for (Stmt& statement : *loop.body) {
      if (std::holds_alternative<ForStmt>(statement.node) ||
          std::holds_alternative<IfStmt>(statement.node) ||
          std::holds_alternative<StoreStmt>(statement.node))
        return false;
      of_row_in_loop_.push_back(uses_.depends(statement));
      if (of_row_in_loop_.back()) ++repeated;
      if (const auto* load = std::get_if<LoadStmt>(&statement.node))
        shares = shares || (!of_row_in_loop_.back() && load->index.mentions(loop.axis));
    }
    const bool plain = std::ranges::all_of(loop.reductions, [](const LoopReduction& reduction) {
      return ir::width_of(reduction.op) == 1;
    });
    return plain && shares && repeated > 0 && repeated <= kMostInSum;
  }

  /// Of each row behind the first one, row by row: few values are alive at a time.
  Block copies_of(std::span<const Stmt> statements) {
    Block copies;
    for (std::size_t j = 1; j < names_.size(); ++j)
      for (const Stmt& statement : statements)
        copies.push_back(copy_of(builder_, statement, names_[j]));
    return copies;
  }

  void jam(ForStmt& loop) {
    Block shared;
    Block first;
    for (std::size_t k = 0; k < loop.body->size(); ++k)
      (of_row_in_loop_[k] ? first : shared).push_back(std::move((*loop.body)[k]));
    Block others = copies_of(first);
    std::ranges::move(first, std::back_inserter(shared));
    std::ranges::move(others, std::back_inserter(shared));
    *loop.body = std::move(shared);
    const std::vector<LoopReduction> reductions = loop.reductions;
    for (std::size_t j = 1; j < names_.size(); ++j)
      for (LoopReduction reduction : reductions) {
        std::map<ScalarId, ScalarId>& renamed = names_[j].scalars;
        const auto called = [&](ScalarId id) { return renamed.contains(id) ? renamed.at(id) : id; };
        for (ScalarId& id : reduction.contributions) id = called(id);
        if (reduction.mask != kNoScalar) reduction.mask = called(reduction.mask);
        for (ScalarId& id : reduction.results) id = renamed[id] = builder_.fresh_scalar();
        loop.reductions.push_back(std::move(reduction));
      }
  }

  NestBuilder& builder_;
  RowUses uses_;
  std::vector<bool> of_row_;          ///< by statement
  std::vector<bool> of_row_in_loop_;  ///< by statement of the loop
  std::vector<CopyNames> names_;
  const Symbol row_;
};

}  // namespace

bool jam_sums(NestBuilder& builder, Block& body, Symbol row, std::int64_t count) {
  SumJammer jammer(builder, row);
  if (!jammer.pays(body)) return false;
  body = jammer.run(std::move(body), count);
  return true;
}

bool jam_rows(NestBuilder& builder, Block& body, Symbol row, std::int64_t count) {
  RowJammer jammer(builder, row);
  if (!jammer.pays(body)) return false;
  body = jammer.run(std::move(body), count);
  return true;
}

}  // namespace heddle::jit
