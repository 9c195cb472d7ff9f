// split_byte_pairs as a nest: panels are independent, and each is gone through once.
//
//   for c in panels (parallel)
//     for g in groups (serial): carry n
//       for pair in pairs of g (vector): fitting[g, pair] = the pair less what it is too much by; most = max of that
//       if most > 0 and n < m: places[n] = g; for pair (vector): rest[n, pair] = what was taken
//       n += most > 0
//     if n > m: copy the panel, clear places and rest
//     counts[c] = n, or -1
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;

class SplitNest {
 public:
  explicit SplitNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        sizes_(ctx.operand_sizes(0)),
        from_(*ctx.affine(0)),
        fitting_(ctx.output_memory(0)),
        rest_(ctx.output_memory(1)),
        places_(ctx.output_memory(2)),
        counts_(ctx.output_memory(3)),
        most_(ctx.node().integer("most")),
        group_(sizes_[2] * sizes_[3]) {}

  void build() {
    const Symbol p = b_.new_axis(sizes_[0]);
    b_.set_parallel(p, sizes_[0]);
    panel_ = p;
    clear_rest();
    const Scalar none = number(0);
    const Symbol g = b_.begin_for(sizes_[1], ForStmt::Kind::Serial);
    group_of_panel_ = g;
    const Scalar before = b_.carry(none);
    const Scalar is_over = b_.apply(ScalarOp::Gt, take_excess(), number(0));
    const Scalar has_room = b_.apply(ScalarOp::Lt, before, number(most_));
    b_.begin_if(b_.apply(ScalarOp::And, is_over, has_room));
    keep_excess(b_.bind(b_.convert(before, DType::I64), 0, most_ - 1, 0));
    b_.end_if();
    const Scalar count = b_.set_next(
        before, b_.apply(ScalarOp::Add, before, select(b_, is_over, number(1), number(0))));
    b_.end_for();
    const Scalar is_too_much = b_.apply(ScalarOp::Gt, count, number(most_));
    b_.begin_if(is_too_much);
    copy();
    clear_rest();
    b_.end_if();
    b_.store(counts_, panel_, select(b_, is_too_much, number(-1), count));
  }

 private:
  Scalar number(std::int64_t value) { return b_.constant_int(DType::I32, value); }

  void clear(NestBufferId buffer, DType dtype, const SymExpr& count) {
    const Symbol k = b_.begin_for(count, ForStmt::Kind::Vector);
    b_.store(buffer, panel_ * count + SymExpr(k), b_.constant_int(dtype, 0));
    b_.end_for();
  }

  void clear_rest() {
    clear(rest_, DType::I8, group_ * most_);
    clear(places_, DType::I32, most_);
  }

  Scalar element(const SymExpr& group, const SymExpr& column, const SymExpr& byte) {
    const SymExpr index[] = {panel_, group, column, byte};
    return b_.load(from_.buffer, from_.offset + strided_index(index, from_.strides));
  }

  struct Pair {
    SymExpr at;  ///< of the first element in a row-major group
    Scalar first, second, excess;
  };
  /// Number `k` of the group's pairs.
  Pair pair_of(const SymExpr& k) {
    const SymExpr column = b_.simplify(floordiv(k, 2));
    const SymExpr byte = b_.simplify(mod(k, 2)) * 2;
    Pair pair{k * 2,
              element(group_of_panel_, column, byte),
              element(group_of_panel_, column, byte + 1),
              {}};
    const Scalar first = b_.convert(pair.first, DType::I32);
    const Scalar second = b_.convert(pair.second, DType::I32);
    // Of the positive elements what is above 128, of the negative ones what is below -128.
    const auto beyond = [&](ScalarOp extreme, std::int64_t limit) {
      const Scalar sum = b_.apply(ScalarOp::Add, {b_.apply(extreme, {first, number(0)}),
                                                  b_.apply(extreme, {second, number(0)})});
      return b_.apply(extreme, {b_.apply(ScalarOp::Sub, {sum, number(limit)}), number(0)});
    };
    constexpr std::int64_t kMost = 128;
    pair.excess =
        b_.apply(ScalarOp::Add, {beyond(ScalarOp::Max, kMost), beyond(ScalarOp::Min, -kMost)});
    return pair;
  }

  /// Writes the pairs of a group so that they fit; gives the most that one was too much by.
  Scalar take_excess() {
    const SymExpr pair_count = b_.simplify(floordiv(group_, 2));
    const Symbol k = b_.begin_for(pair_count, ForStmt::Kind::Vector);
    const Pair pair = pair_of(k);
    const SymExpr to = (panel_ * sizes_[1] + group_of_panel_) * group_ + pair.at;
    const Scalar first = b_.apply(ScalarOp::Sub, {b_.convert(pair.first, DType::I32), pair.excess});
    b_.store(fitting_, to, b_.convert(first, DType::I8));
    b_.store(fitting_, to + 1, pair.second);
    const Scalar much = b_.apply(ScalarOp::Abs, {pair.excess});
    const Scalar most = b_.reduce(ReduceOp::Max, DType::I32, {&much, 1})[0];
    b_.end_for();
    return most;
  }

  void keep_excess(const SymExpr& place) {
    b_.store(places_, panel_ * most_ + place,
             b_.convert(b_.from_index(group_of_panel_), DType::I32));
    const SymExpr pair_count = b_.simplify(floordiv(group_, 2));
    const Symbol k = b_.begin_for(pair_count, ForStmt::Kind::Vector);
    const Pair pair = pair_of(k);
    b_.store(rest_, (panel_ * most_ + place) * group_ + pair.at,
             b_.convert(pair.excess, DType::I8));
    b_.end_for();
  }

  void copy() {
    const Symbol g = b_.begin_for(sizes_[1], ForStmt::Kind::Serial);
    const Symbol column = b_.begin_for(sizes_[2], ForStmt::Kind::Serial);
    const Symbol byte = b_.begin_for(sizes_[3], ForStmt::Kind::Vector);
    const SymExpr to =
        ((panel_ * sizes_[1] + SymExpr(g)) * sizes_[2] + SymExpr(column)) * sizes_[3];
    b_.store(fitting_, to + SymExpr(byte), element(g, column, byte));
    b_.end_for();
    b_.end_for();
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> sizes_;
  const AffineOperand from_;
  const NestBufferId fitting_, rest_, places_, counts_;
  const std::int64_t most_;
  const SymExpr group_;  ///< bytes of a group of all columns
  SymExpr panel_, group_of_panel_;
};

void build_split_byte_pairs(NestContext& ctx) { SplitNest(ctx).build(); }

}  // namespace

const NestRecipe kSplitBytePairsRecipe{
    .name = "split_byte_pairs", .memory_operands = 0b1, .build = build_split_byte_pairs};

}  // namespace heddle::jit
