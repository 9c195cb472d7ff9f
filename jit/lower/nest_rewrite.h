// Rewrites of nests while they are being made: substitution in indices, loop-invariant code, dead code,
// canonical numbers.
#pragma once

#include <vector>

#include "jit/nest.h"

namespace heddle::jit {

struct LowerOptions;

/// Calls `visit(SymExpr&)` for every expression in `block`, nested ones included.
template <typename F>
void for_each_expr(Block& block, F&& visit);

/// Every expression in `block`, in order.
std::vector<SymExpr> expressions_of(const Block& block);

/// Replaces symbols in every expression of `block` and simplifies with `facts`.
void substitute(Block& block, const base::SymbolExprs& replacements, const base::Facts& facts);

/// Moves statements that are the same in every iteration of a loop in front of it. A load moves only when
/// the nest writes nothing to its buffer and an iteration is certain to run: `loops_run` says that this
/// holds of every loop.
void hoist_invariants(Nest& nest, bool loops_run);

/// Computes what all rows of a serial loop over vector loops do alike (positions and weights of columns, where an image is
/// resized) once before them, into tables that the rows read. Where it takes several operations, and the columns are few
/// enough for tables that stay in a cache.
///
///   for row (serial): for i (vector): %1 = index(i); …; %9 = load x[t0]
///     ==>
///   for i (vector): %1 = index(i); …; table[i] = %8
///   for row (serial): for i (vector): %8 = load table[i]; %9 = load x[t0]
void tabulate_columns(Nest& nest);

/// Removes statements of a nest, or of what becomes one, whose results nobody uses.
void drop_unused(Block& body);

/// What canonical numbering did to a nest's parameters.
struct Renumbering {
  std::vector<NestBufferId>
      globals;                 ///< old ids of the global buffers that remain, in their new order
  std::vector<SymExpr> sizes;  ///< what each size parameter stands for, in the old symbols
};

/// Numbers buffers, sizes, axes, temporaries and scalars in the order of their first use, makes parameters of sizes that the nest
/// uses as they are (base/size_names.h), and drops unused buffers: nests that do the same become equal. `sizes_first`: expressions whose symbols are numbered
/// before all others, in this order.
Renumbering renumber(Nest& nest, const std::vector<SymExpr>& sizes_first);

// Implementation of the template.

inline void visit_exprs(ConstStmt&, auto&&) {}
inline void visit_exprs(GivenStmt&, auto&&) {}
inline void visit_exprs(ApplyStmt&, auto&&) {}
inline void visit_exprs(ConvertStmt&, auto&&) {}
inline void visit_exprs(BitsStmt&, auto&&) {}
inline void visit_exprs(IndexStmt& s, auto&& visit) { visit(s.index); }
inline void visit_exprs(LoadStmt& s, auto&& visit) { visit(s.index); }
inline void visit_exprs(StoreStmt& s, auto&& visit) { visit(s.index); }
inline void visit_exprs(BindStmt& s, auto&& visit) {
  visit(s.low);
  visit(s.high);
}
inline void visit_exprs(IfStmt& s, auto&& visit) { for_each_expr(*s.body, visit); }
inline void visit_exprs(ForStmt& s, auto&& visit) {
  visit(s.extent);
  for_each_expr(*s.body, visit);
}
inline void visit_exprs(Windows& w, auto&& visit) {
  visit(w.first);
  if (w.outside) visit(w.outside->index);
  for (WindowAxis& axis : w.axes)
    for (SymExpr* expr : {&axis.windows, &axis.size, &axis.memory_stride}) visit(*expr);
}
inline void visit_exprs(Dequantised& d, auto&& visit) {
  for_each_part(d, [&](Dequantised::Part& part) {
    for (SymExpr* expr : {&part.base, &part.row_stride, &part.column_stride}) visit(*expr);
  });
  if (!d.fixed) return;
  visit(d.fixed->digit_stride);
  visit(d.fixed->sum_stride);
}
inline void visit_exprs(ContractStmt& s, auto&& visit) {
  for (ContractStmt::Run& run : s.runs)
    for (SymExpr* expr : {&run.count, &run.a_stride, &run.b_stride}) visit(*expr);
  for (SymExpr* expr : {&s.rows, &s.columns, &s.depth, &s.panel_stride, &s.ahead}) visit(*expr);
  for (TileOperand* operand : {&s.a, &s.b}) {
    for (SymExpr* expr : {&operand->base, &operand->row_stride, &operand->column_stride})
      visit(*expr);
    if (operand->windows) visit_exprs(*operand->windows, visit);
    if (operand->dequantised) visit_exprs(*operand->dequantised, visit);
  }
}

template <typename F>
void for_each_expr(Block& block, F&& visit) {
  for (Stmt& statement : block)
    std::visit([&](auto& node) { visit_exprs(node, visit); }, statement.node);
}

}  // namespace heddle::jit
