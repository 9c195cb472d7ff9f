// Statements whose results nobody uses go away.
#include <set>

#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

/// Walks blocks backwards: uses come before definitions.
class Sweeper {
 public:
  void sweep(Block& block) {
    Block kept;
    for (std::size_t k = block.size(); k-- > 0;) {
      Stmt& statement = block[k];
      if (!std::visit([&](auto& node) { return is_needed(node); }, statement.node)) continue;
      std::visit([&](auto& node) { enter(node); }, statement.node);
      kept.push_back(std::move(statement));
    }
    block.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

 private:
  bool is_needed(StoreStmt&) { return true; }
  bool is_needed(ContractStmt&) { return true; }
  bool is_needed(IfStmt&) { return true; }
  bool is_needed(BindStmt& s) { return s.check != 0 || symbols_.count(s.symbol) != 0; }
  bool is_needed(ForStmt& s) {
    std::erase_if(s.reductions, [&](LoopReduction& reduction) {
      bool used = false;
      for (ScalarId id : reduction.results) used = used || used_.count(id) != 0;
      return !used;
    });
    sweep_loop(s);
    return !s.body->empty() || !s.reductions.empty() || !s.carried.empty();
  }
  bool is_needed(auto& node) {
    bool used = false;
    visit_definitions(node, [&](ScalarId id) { used = used || used_.count(id) != 0; });
    return used;
  }

  void sweep_loop(ForStmt& loop) {
    visit_loop_exits(loop, [&](ScalarId id) { used_.insert(id); });
    sweep(*loop.body);
  }

  void enter(auto& node) {
    visit_uses(node, [&](ScalarId id) { used_.insert(id); });
    if constexpr (requires { node.body; }) {
      if constexpr (requires { node.condition; }) sweep(*node.body);
    }
    note_symbols(node);
  }

  void note_symbols(IfStmt&) {}
  void note_symbols(ForStmt& s) { note(s.extent); }
  void note_symbols(auto& node) {
    visit_exprs(node, [&](SymExpr& expr) { note(expr); });
  }
  void note(const SymExpr& expr) {
    std::vector<Symbol> found;
    expr.collect_symbols(found);
    symbols_.insert(found.begin(), found.end());
  }

  std::set<ScalarId> used_;
  std::set<Symbol> symbols_;
};

}  // namespace

void drop_unused(Block& body) { Sweeper().sweep(body); }

}  // namespace heddle::jit
