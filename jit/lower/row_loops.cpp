#include "jit/lower/row_loops.h"

#include <algorithm>

#include "jit/lower/nest_rewrite.h"

namespace heddle::jit {
namespace {

/// Runs of fewer columns are as well read by division.
constexpr std::int64_t kLeastRun = 16;

/// What `expr` divides `axis` by: d where there is floor(axis/d) or mod(axis,d).
void note_divisors(const SymExpr& expr, Symbol axis, std::vector<SymExpr>& divisors) {
  if (!expr.mentions(axis)) return;
  const std::vector<SymExpr> operands = expr.operands();
  const bool divides = expr.kind() == SymExpr::Kind::FloorDiv || expr.kind() == SymExpr::Kind::Mod;
  if (divides && operands[0].is_symbol() && operands[0].symbol() == axis)
    divisors.push_back(operands[1]);
  for (const SymExpr& operand : operands) note_divisors(operand, axis, divisors);
}

class Expander {
 public:
  Expander(NestBuilder& builder, Symbol column, const std::vector<AxisRun>& columns,
           ForStmt::Kind kind, bool cuts_runs)
      : builder_(builder), column_(column), columns_(columns), kind_(kind), cuts_runs_(cuts_runs) {}

  void run(Block& body) {
    for (Stmt& statement : body) {
      auto* loop = std::get_if<ForStmt>(&statement.node);
      if (loop != nullptr && loop->axis == column_) *loop = expand(std::move(*loop));
    }
  }

 private:
  ForStmt expand(ForStmt loop) {
    loop.kind = kind_;
    const std::vector<AxisRun> runs = collapse(builder_, *loop.body, own_axes(*loop.body));
    if (runs.empty()) {
      loop.axis = builder_.new_axis(1);
      loop.extent = 1;
      return loop;
    }
    const bool combines = std::none_of(
        loop.reductions.begin(), loop.reductions.end(),
        [](const LoopReduction& reduction) { return reduction.op == ir::ReduceOp::Welford; });
    return runs.size() > 1 && !combines ? flat_loop(std::move(loop), runs)
                                        : nested_loops(std::move(loop), runs);
  }

  /// Fresh axes for the columns in one loop's body.
  std::vector<AxisRun> own_axes(Block& body) {
    base::SymbolExprs replacements;
    std::vector<AxisRun> own;
    for (const AxisRun& column : columns_) {
      own.push_back({builder_.new_axis(column.extent), column.extent});
      replacements.emplace(column.axis, SymExpr(own.back().axis));
    }
    if (!own.empty()) substitute(body, replacements, builder_.facts());
    if (!cuts_runs_) return own;
    // Each cut leaves a smaller axis.
    for (std::size_t k = 0; k < own.size(); ++k)
      while (const auto run = run_of(body, own[k]))
        own.insert(own.begin() + static_cast<std::ptrdiff_t>(k), cut(body, own[k], *run));
    return own;
  }

  /// The longest run that `body` numbers along `axis`, if there are several of them.
  std::optional<SymExpr> run_of(const Block& body, const AxisRun& axis) const {
    std::vector<SymExpr> divisors;
    for (const SymExpr& expr : expressions_of(body)) note_divisors(expr, axis.axis, divisors);
    std::optional<SymExpr> longest;
    for (const SymExpr& run : divisors) {
      const auto count = divide_exact(axis.extent, run);
      if (!count || count->is_constant(1)) continue;
      if (run.is_constant() && run.constant() < kLeastRun) continue;
      if (!longest || divide_exact(run, *longest)) longest = run;
    }
    return longest;
  }

  /// Makes `axis` one over a run. @return that over the runs.
  AxisRun cut(Block& body, AxisRun& axis, const SymExpr& run) {
    const SymExpr count = *divide_exact(axis.extent, run);
    const AxisRun runs{builder_.new_axis(count), count};
    const AxisRun within{builder_.new_axis(run), run};
    substitute(body, {{axis.axis, SymExpr(runs.axis) * run + SymExpr(within.axis)}},
               builder_.facts());
    axis = within;
    return runs;
  }

  ForStmt flat_loop(ForStmt loop, const std::vector<AxisRun>& runs) {
    ir::Dims sizes;
    for (const AxisRun& run : runs) sizes.push_back(run.extent);
    loop.extent = base::product(sizes);
    loop.axis = builder_.new_axis(loop.extent);
    const Index index = delinearize(loop.axis, sizes, builder_.facts());
    base::SymbolExprs replacements;
    for (std::size_t k = 0; k < runs.size(); ++k) replacements.emplace(runs[k].axis, index[k]);
    substitute(*loop.body, replacements, builder_.facts());
    return loop;
  }

  ForStmt nested_loops(ForStmt loop, const std::vector<AxisRun>& runs) {
    loop.axis = runs.back().axis;
    loop.extent = runs.back().extent;
    for (std::size_t k = runs.size() - 1; k-- > 0;)
      loop = around(std::move(loop), runs[k].axis, runs[k].extent);
    return loop;
  }

  /// A serial loop around `inner` that reduces what `inner` reduces.
  ForStmt around(ForStmt inner, Symbol axis, const SymExpr& extent) {
    ForStmt outer;
    outer.axis = axis;
    outer.extent = extent;
    for (LoopReduction& reduction : inner.reductions) {
      LoopReduction again = reduction;
      again.mask = kNoScalar;
      again.contributions.clear();
      for (ScalarId& id : reduction.results) {
        id = builder_.fresh_scalar();
        again.contributions.push_back(id);
      }
      outer.reductions.push_back(std::move(again));
    }
    outer.body = std::make_shared<Block>();
    outer.body->push_back(Stmt{std::move(inner)});
    return outer;
  }

  NestBuilder& builder_;
  const Symbol column_;
  const std::vector<AxisRun>& columns_;
  const ForStmt::Kind kind_;
  const bool cuts_runs_;
};

}  // namespace

void expand_column_loops(NestBuilder& builder, Block& body, Symbol column,
                         const std::vector<AxisRun>& columns, ForStmt::Kind kind, bool cuts_runs) {
  Expander(builder, column, columns, kind, cuts_runs).run(body);
}

}  // namespace heddle::jit
