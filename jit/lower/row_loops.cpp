#include "jit/lower/row_loops.h"

#include <algorithm>

#include "jit/lower/nest_rewrite.h"

namespace heddle::jit {
namespace {

class Expander {
 public:
  Expander(NestBuilder& builder, Symbol column, const std::vector<AxisRun>& runs,
           ForStmt::Kind kind)
      : builder_(builder), column_(column), runs_(runs), kind_(kind) {}

  void run(Block& body) {
    for (Stmt& statement : body) {
      auto* loop = std::get_if<ForStmt>(&statement.node);
      if (loop != nullptr && loop->axis == column_) *loop = expand(std::move(*loop));
    }
  }

 private:
  ForStmt expand(ForStmt loop) {
    if (runs_.empty()) return one_loop(std::move(loop), 1, {});
    const bool combines = std::none_of(
        loop.reductions.begin(), loop.reductions.end(),
        [](const LoopReduction& reduction) { return reduction.op == ir::ReduceOp::Welford; });
    if (runs_.size() > 1 && !combines) return flat_loop(std::move(loop));
    return nested_loops(std::move(loop));
  }

  ForStmt one_loop(ForStmt loop, const SymExpr& extent, const base::SymbolExprs& replacements) {
    loop.axis = builder_.new_axis(extent);
    loop.extent = extent;
    loop.kind = kind_;
    if (!replacements.empty()) substitute(*loop.body, replacements, builder_.facts());
    return loop;
  }

  ForStmt flat_loop(ForStmt loop) {
    ir::Dims sizes;
    for (const AxisRun& run : runs_) sizes.push_back(run.extent);
    const SymExpr extent = base::product(sizes);
    ForStmt flat = one_loop(std::move(loop), extent, {});
    const Index index = delinearize(flat.axis, sizes, builder_.facts());
    base::SymbolExprs replacements;
    for (std::size_t k = 0; k < runs_.size(); ++k) replacements.emplace(runs_[k].axis, index[k]);
    substitute(*flat.body, replacements, builder_.facts());
    return flat;
  }

  ForStmt nested_loops(ForStmt loop) {
    base::SymbolExprs replacements;
    std::vector<Symbol> axes;
    for (const AxisRun& run : runs_) {
      axes.push_back(builder_.new_axis(run.extent));
      replacements.emplace(run.axis, SymExpr(axes.back()));
    }
    substitute(*loop.body, replacements, builder_.facts());
    loop.axis = axes.back();
    loop.extent = runs_.back().extent;
    loop.kind = kind_;
    for (std::size_t k = runs_.size() - 1; k-- > 0;)
      loop = around(std::move(loop), axes[k], runs_[k].extent);
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
  const std::vector<AxisRun>& runs_;
  const ForStmt::Kind kind_;
};

}  // namespace

void expand_column_loops(NestBuilder& builder, Block& body, Symbol column,
                         const std::vector<AxisRun>& runs, ForStmt::Kind kind) {
  Expander(builder, column, runs, kind).run(body);
}

}  // namespace heddle::jit
