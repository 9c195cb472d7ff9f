// merge_runs as a nest: an element's place is its place in its own run and, for each other run of its group, the number of
// elements that come before it there, found by halving. All elements are independent.
//
//   for p in rows x blocks of elements (parallel)
//     for i in the block (vector)
//       place = i in its run
//       for other run of the group (serial): place += search it (serial)
//       values[place] = keys[i]; indices[place] = order[i]
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

constexpr std::int64_t kMergeBlock = 256;

class MergeNest {
 public:
  explicit MergeNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        sizes_(ctx.operand_sizes(0)),
        length_(sizes_.back()),
        run_(ctx.node().integer("run")),
        count_(max(1, std::get<SymExpr>(ctx.node().attr("count")))) {}

  void build() {
    const std::span<const SymExpr> rows = std::span(sizes_).first(sizes_.size() - 1);
    const SymExpr blocks = ceildiv(length_, kMergeBlock);
    const SymExpr extent = base::product(rows) * blocks;
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    row_ = delinearize(b_.simplify(floordiv(p, blocks)), rows, b_.facts());
    const SymExpr begin = b_.simplify(mod(p, blocks)) * kMergeBlock;
    const SymExpr lane =
        b_.begin_for(b_.simplify(min(kMergeBlock, length_ - begin)), ForStmt::Kind::Vector);
    place(begin + lane);
    b_.end_for();
  }

 private:
  Index at(const SymExpr& position) const {
    Index index = row_;
    index.push_back(position);
    return index;
  }

  void place(const SymExpr& i) {
    const Scalar mine = ctx_.operand(0, at(i));
    const SymExpr own = b_.simplify(floordiv(i, run_));
    const SymExpr first = b_.simplify(floordiv(i, run_ * count_)) * count_;  // run of the group
    const Scalar start = b_.from_index(i - own * run_);
    const SymExpr other = first + SymExpr(b_.begin_for(count_, ForStmt::Kind::Serial));
    const Scalar so_far = b_.carry(start);
    const Scalar found = elements_before(mine, own, other);
    const Scalar rank = b_.set_next(so_far, b_.apply(ScalarOp::Add, so_far, found));
    b_.end_for();
    const Scalar to = b_.apply(ScalarOp::Add, b_.from_index(first * run_), rank);
    const SymExpr target = b_.bind(to, 0, length_ - 1, 0);
    ctx_.result(0, at(target), mine);
    ctx_.result(1, at(target), ctx_.operand(1, at(i)));
  }

  /// How many elements of run `other` come before `mine`, which is one of run `own`: of equal ones those of runs before.
  Scalar elements_before(Scalar mine, const SymExpr& own, const SymExpr& other) {
    const Scalar low = b_.from_index(min(other * run_, length_));
    const Scalar end = b_.from_index(min(other * run_ + run_, length_));
    const Scalar high = select(b_, compare(b_, ScalarOp::Eq, other, own), low, end);
    const Scalar is_earlier = compare(b_, ScalarOp::Lt, other, own);
    const auto precedes = [&](Scalar middle, Scalar open) {
      const Scalar key = ctx_.operand(0, at(b_.bind(middle, 0, length_ - 1, 0)), open.id);
      const bool descending = ctx_.node().flag("descending");
      const Scalar weakly = b_.apply(ScalarOp::Not, {comes_before(b_, mine, key, descending)});
      return select(b_, is_earlier, weakly, comes_before(b_, key, mine, descending));
    };
    const Scalar result = first_that_does_not(b_, low, high, halvings(run_), precedes);
    return b_.apply(ScalarOp::Sub, result, low);
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> sizes_;
  const SymExpr length_;
  const std::int64_t run_;
  const SymExpr count_;
  Index row_;
};

void build_merge_runs(NestContext& ctx) { MergeNest(ctx).build(); }

}  // namespace

const NestRecipe kMergeRunsRecipe{
    .name = "merge_runs", .memory_operands = 0b11, .build = build_merge_runs};

}  // namespace heddle::jit
