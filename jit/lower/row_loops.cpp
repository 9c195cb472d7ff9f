#include "jit/lower/row_loops.h"

#include <algorithm>

#include "jit/lower/nest_rewrite.h"

namespace heddle::jit {
namespace {

class Expander {
 public:
  Expander(NestBuilder& builder, Symbol column, const std::vector<AxisRun>& columns,
           ForStmt::Kind kind)
      : builder_(builder), column_(column), columns_(columns), kind_(kind) {}

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
    return own;
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
};

}  // namespace

void expand_column_loops(NestBuilder& builder, Block& body, Symbol column,
                         const std::vector<AxisRun>& columns, ForStmt::Kind kind) {
  Expander(builder, column, columns, kind).run(body);
}

}  // namespace heddle::jit
