// Which scalars the statements of a nest use and define.
#pragma once

#include "jit/nest.h"

namespace heddle::jit {

inline void visit_uses(ConstStmt&, auto&&) {}
inline void visit_uses(GivenStmt&, auto&&) {}
inline void visit_uses(IndexStmt&, auto&&) {}
inline void visit_uses(ContractStmt&, auto&&) {}
inline void visit_uses(ApplyStmt& s, auto&& visit) {
  for (ScalarId& id : s.operands) visit(id);
}
inline void visit_uses(ConvertStmt& s, auto&& visit) { visit(s.operand); }
inline void visit_uses(BitsStmt& s, auto&& visit) { visit(s.operand); }
inline void visit_uses(BindStmt& s, auto&& visit) {
  visit(s.operand);
  if (s.mask != kNoScalar) visit(s.mask);
}
inline void visit_uses(LoadStmt& s, auto&& visit) {
  if (s.mask != kNoScalar) visit(s.mask);
}
inline void visit_uses(StoreStmt& s, auto&& visit) {
  visit(s.operand);
  if (s.mask != kNoScalar) visit(s.mask);
}
inline void visit_uses(IfStmt& s, auto&& visit) { visit(s.condition); }
/// Of a loop: what enters it. What leaves its body is visited with visit_loop_exits.
inline void visit_uses(ForStmt& s, auto&& visit) {
  for (LoopCarried& carried : s.carried) visit(carried.initial);
}
inline void visit_loop_exits(ForStmt& s, auto&& visit) {
  for (LoopCarried& carried : s.carried) visit(carried.next);
  for (LoopReduction& reduction : s.reductions) {
    for (ScalarId& id : reduction.contributions) visit(id);
    if (reduction.mask != kNoScalar) visit(reduction.mask);
  }
}

inline void visit_definitions(auto&, auto&&) {}
inline void visit_definitions(ConstStmt& s, auto&& visit) { visit(s.result); }
inline void visit_definitions(GivenStmt& s, auto&& visit) { visit(s.result); }
inline void visit_definitions(ApplyStmt& s, auto&& visit) { visit(s.result); }
inline void visit_definitions(ConvertStmt& s, auto&& visit) { visit(s.result); }
inline void visit_definitions(BitsStmt& s, auto&& visit) { visit(s.result); }
inline void visit_definitions(IndexStmt& s, auto&& visit) { visit(s.result); }
inline void visit_definitions(LoadStmt& s, auto&& visit) { visit(s.result); }
/// Of a loop: what exists after it.
inline void visit_definitions(ForStmt& s, auto&& visit) {
  for (LoopReduction& reduction : s.reductions)
    for (ScalarId& id : reduction.results) visit(id);
  for (LoopCarried& carried : s.carried) visit(carried.result);
}

}  // namespace heddle::jit
