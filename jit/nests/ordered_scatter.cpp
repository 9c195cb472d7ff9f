// ordered_scatter as a nest: updates of one slice are neighbours, and the first of them does all. The elements of all
// updates are independent.
//
//   for p in blocks of elements of all updates (parallel)
//     for e in the block (vector)
//       length = updates from e's on that go where it goes (serial: halving), 0 unless it is the first of them
//       lengths[e] = length; longest = max(length)
//     for e in the block (vector)
//       for k < longest (serial): where k < length, element = join(element, update k)
//       where length > 0, store the element
#include <limits>

#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

constexpr std::int64_t kScatterBlock = 256;

class OrderedScatter {
 public:
  explicit OrderedScatter(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        x_(ctx.operand_sizes(0)),
        updates_(ctx.operand_sizes(1)[0]),
        out_(ctx.output_memory()) {
    const auto coordinates = static_cast<std::size_t>(ctx.node().integer("coordinates"));
    slice_ = std::span(x_).subspan(coordinates);
    slices_ = base::product(std::span(x_).first(coordinates));
    width_ = base::product(slice_);
  }

  void build() {
    const SymExpr total = updates_ * width_;
    const SymExpr extent = ceildiv(total, kScatterBlock);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    begin_ = SymExpr(p) * kScatterBlock;
    lanes_ = b_.simplify(min(kScatterBlock, total - begin_));
    lengths_ = b_.add_local(DType::I64, kScatterBlock, kScatterBlock);
    const SymExpr longest = b_.bind(measure(), 0, updates_, 0);
    update(longest);
  }

 private:
  SymExpr update_of(const SymExpr& lane) const {
    return b_.simplify(floordiv(begin_ + lane, width_));
  }
  Scalar destination(const SymExpr& k, ScalarId mask = kNoScalar) {
    return ctx_.operand(1, Index{k}, mask);
  }

  /// Notes how many updates each element's thread joins. @return the largest of these numbers.
  Scalar measure() {
    const SymExpr lane = b_.begin_for(lanes_, ForStmt::Kind::Vector);
    const SymExpr k = update_of(lane);
    const Scalar here = destination(k);
    const std::string& what = ctx_.node().string("what");
    b_.bind(here, 0, slices_ - 1, ctx_.check(what + ": index out of range"));
    const Scalar begins = b_.apply(ScalarOp::Or, compare(b_, ScalarOp::Eq, k, 0),
                                   b_.apply(ScalarOp::Ne, destination(max(0, k - 1)), here));
    const Scalar exists = b_.apply(ScalarOp::And, b_.apply(ScalarOp::Ge, here, b_.i64(0)),
                                   b_.apply(ScalarOp::Lt, here, b_.from_index(slices_)));
    const Scalar mine = b_.apply(ScalarOp::And, begins, exists);
    const Scalar length = b_.apply(ScalarOp::Sub, end_of(here, k, mine), b_.from_index(k));
    const Scalar joined = select(b_, mine, length, b_.i64(0));
    b_.store(lengths_, lane, joined);
    const Scalar longest = b_.reduce(ir::ReduceOp::Max, DType::I64, {&joined, 1})[0];
    b_.end_for();
    return longest;
  }

  /// The first update after k that does not go `here`.
  Scalar end_of(Scalar here, const SymExpr& k, Scalar mine) {
    const Scalar low = b_.from_index(k + 1);
    const Scalar high = select(b_, mine, b_.from_index(updates_), low);
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() >> 24;  // memory's
    const std::int64_t count = updates_.as_constant().value_or(kMost);
    return first_that_does_not(b_, low, high, halvings(count), [&](Scalar middle, Scalar open) {
      const Scalar there = destination(b_.bind(middle, 0, updates_ - 1, 0), open.id);
      return b_.apply(ScalarOp::Eq, there, here);
    });
  }

  void update(const SymExpr& longest) {
    const SymExpr lane = b_.begin_for(lanes_, ForStmt::Kind::Vector);
    const SymExpr k = update_of(lane);
    const SymExpr column = b_.simplify(mod(begin_ + lane, width_));
    const Scalar length = b_.load(lengths_, lane);
    const Scalar touched = b_.apply(ScalarOp::Gt, length, b_.i64(0));
    const SymExpr target = b_.bind(destination(k), 0, slices_ - 1, 0) * width_ + column;
    const Scalar old = b_.load(out_, target, touched.id);
    const SymExpr step = b_.begin_for(longest, ForStmt::Kind::Serial);
    const Scalar now = b_.carry(old);
    const Scalar there = b_.apply(ScalarOp::Lt, b_.from_index(step), length);
    const Scalar named = ctx_.operand(2, Index{min(updates_ - 1, k + step)}, there.id);
    Index from{b_.bind(named, 0, updates_ - 1, 0)};
    const Index within = delinearize(column, slice_, b_.facts());
    from.insert(from.end(), within.begin(), within.end());
    const Scalar next = joined(now, ctx_.operand(3, from, there.id));
    const Scalar result = b_.set_next(now, select(b_, there, next, now));
    b_.end_for();
    b_.store(out_, target, result, touched.id);
    b_.end_for();
  }

  Scalar joined(Scalar old, Scalar update) {
    const auto op = join_of(ctx_.node().string("reduction"));
    return op ? b_.apply(*op, old, update) : update;
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> x_;
  const SymExpr updates_;
  const NestBufferId out_;
  std::span<const SymExpr> slice_;
  SymExpr slices_, width_, begin_, lanes_;
  NestBufferId lengths_ = 0;  ///< of the block's elements
};

void build_ordered_scatter(NestContext& ctx) { OrderedScatter(ctx).build(); }

}  // namespace

const NestRecipe kOrderedScatterRecipe{
    .name = "ordered_scatter", .memory_operands = 0b110, .build = build_ordered_scatter};

}  // namespace heddle::jit
