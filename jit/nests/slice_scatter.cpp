// slice_scatter as a nest, of a call that overwrites x: the window alone is written.
//
//   for p in blocks of runs (parallel): runs along the window where its elements are neighbours, else
//                                       along what comes after the axis
//     for e in the block (vector): result[row, start + k, column] = update[row, k, column]
#include "base/check.h"
#include "ir/op.h"
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

void build_slice_scatter(NestContext& ctx) {
  HD_CHECK(ir::overwrites(ctx.node(), 0));
  NestBuilder& b = ctx.builder();
  const NestBufferId out = ctx.output_memory();
  const std::vector<SymExpr> x = ctx.operand_sizes(0);
  const std::vector<SymExpr> update = ctx.operand_sizes(1);
  const std::int64_t named = ctx.node().integer("axis");
  const auto axis =
      static_cast<std::size_t>(named < 0 ? named + static_cast<std::int64_t>(x.size()) : named);
  const SymExpr start = ctx.translate(std::get<SymExpr>(ctx.node().attr("start")));

  const SymExpr columns = base::product(std::span(x).subspan(axis + 1));
  const std::size_t inner = columns.is_constant(1) ? axis : axis + 1;  // where runs begin
  const SymExpr run = base::product(std::span(update).subspan(inner));
  const bool is_short = run.is_constant() && run.constant() <= kScatterColumns;
  const SymExpr blocks = is_short ? SymExpr(1) : ceildiv(run, kScatterColumns);
  const SymExpr extent = base::product(std::span(update).first(inner)) * blocks;
  const Symbol p = b.new_axis(extent);
  b.set_parallel(p, extent);
  const SymExpr begin = b.simplify(mod(p, blocks)) * kScatterColumns;
  const SymExpr length = is_short ? run : b.simplify(min(kScatterColumns, run - begin));
  const Symbol e = b.begin_for(length, ForStmt::Kind::Vector);
  Index from =
      delinearize(b.simplify(floordiv(p, blocks)), std::span(update).first(inner), b.facts());
  const Index within = delinearize(begin + SymExpr(e), std::span(update).subspan(inner), b.facts());
  from.insert(from.end(), within.begin(), within.end());
  Index to = from;
  to[axis] = to[axis] + start;
  b.store(out, b.simplify(linear_index(to, x)), ctx.operand(1, from));
  b.end_for();
}

}  // namespace

const NestRecipe kSliceScatterRecipe{.name = "slice_scatter", .build = build_slice_scatter};

}  // namespace heddle::jit
