// Loop-invariant statements leave their vector loop.
#include <set>

#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

bool divides_by_unknown(const SymExpr& expr) {
  using Kind = SymExpr::Kind;
  if (expr.is_constant() || expr.is_symbol()) return false;
  const std::vector<SymExpr> operands = expr.operands();
  if ((expr.kind() == Kind::FloorDiv || expr.kind() == Kind::Mod) && !operands[1].is_constant())
    return true;
  for (const SymExpr& operand : operands)
    if (divides_by_unknown(operand)) return true;
  return false;
}

class Hoister {
 public:
  Hoister(Nest& nest, bool loops_run) : nest_(nest), loops_run_(loops_run) {}
  void run() { walk(nest_.body); }

 private:
  void walk(Block& block) {
    for (std::size_t k = 0; k < block.size(); ++k) {
      if (auto* branch = std::get_if<IfStmt>(&block[k].node)) walk(*branch->body);
      auto* loop = std::get_if<ForStmt>(&block[k].node);
      if (loop == nullptr) continue;
      walk(*loop->body);
      Block moved = take_invariants(*loop);
      const std::size_t count = moved.size();
      block.insert(block.begin() + static_cast<std::ptrdiff_t>(k),
                   std::make_move_iterator(moved.begin()), std::make_move_iterator(moved.end()));
      k += count;
    }
  }

  Block take_invariants(ForStmt& loop) {
    varying_scalars_.clear();
    varying_symbols_ = {loop.axis};
    certain_ = loops_run_ || base::provably_nonnegative(loop.extent - 1, nest_.facts);
    for (const LoopCarried& carried : loop.carried) varying_scalars_.insert(carried.current);
    Block moved;
    Block stay;
    for (Stmt& statement : *loop.body) {
      const bool invariant =
          std::visit([&](auto& node) { return is_invariant(node); }, statement.node);
      if (!invariant) mark_varying(statement);
      (invariant ? moved : stay).push_back(std::move(statement));
    }
    *loop.body = std::move(stay);
    return moved;
  }

  bool is_invariant(auto& node) {
    bool invariant = true;
    visit_uses(node, [&](ScalarId id) { invariant = invariant && !varying_scalars_.count(id); });
    return invariant && is_movable(node);
  }
  bool is_movable(const ConstStmt&) const { return true; }
  bool is_movable(const GivenStmt&) const { return true; }
  bool is_movable(const ApplyStmt&) const { return true; }
  bool is_movable(const ConvertStmt&) const { return true; }
  bool is_movable(const BitsStmt&) const { return true; }
  bool is_movable(const IndexStmt& s) const { return is_fixed(s.index); }
  bool is_movable(const LoadStmt& s) const {
    return certain_ && is_fixed(s.index) && !nest_.buffers[s.buffer].written;
  }
  bool is_movable(const BindStmt& s) const {
    return certain_ && is_fixed(s.low) && is_fixed(s.high);
  }
  bool is_movable(const auto&) const { return false; }

  bool is_fixed(const SymExpr& expr) const {
    for (const Symbol& symbol : varying_symbols_)
      if (expr.mentions(symbol)) return false;
    return certain_ || !divides_by_unknown(expr);
  }

  void mark_varying(Stmt& statement) {
    std::visit(
        [&](auto& node) {
          visit_definitions(node, [&](ScalarId id) { varying_scalars_.insert(id); });
        },
        statement.node);
    if (const auto* bind = std::get_if<BindStmt>(&statement.node))
      varying_symbols_.insert(bind->symbol);
  }

  Nest& nest_;
  const bool loops_run_;
  std::set<ScalarId> varying_scalars_;
  std::set<Symbol> varying_symbols_;
  bool certain_ = false;
};

}  // namespace

void hoist_invariants(Nest& nest, bool loops_run) { Hoister(nest, loops_run).run(); }

}  // namespace heddle::jit
