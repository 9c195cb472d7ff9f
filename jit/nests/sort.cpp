// sort and topk as nests: one row a parallel iteration, ordered through the positions of its elements.
//
// Short rows: the place of an element is the number of elements that come before it.
//
//   for i (vector): place = sum over j (serial) of "j comes before i"; order[place] = i
//
// Long rows on the CPU: by the digits of their keys, radix_sort.h.
//
// Long rows on CUDA: runs of 1, 2, 4, … elements are merged in pairs. An element's place in the merged run is its
// place in its own run and the number of elements of the other run that come before it, found by halving.
// All elements of a pass are independent.
//
// The first k elements of many rows on the CPU: rows in lanes, best_in_lanes.h. Of few long rows, k small: a sorted list of the
// best so far. A block of elements none of which comes before the last of the list is passed over at the speed of a
// comparison.
//
//   for element < k (serial): insert it
//   for block of the others (serial)
//     for i (vector): any |= "i comes before the last of the list"
//     if any: for pieces of the block (serial), the same way: for i (serial): insert it if it does
//
//   for pass (serial)
//     for i (vector): search the other run (serial); merged[place] = order[i]
//     for i (vector): order[i] = merged[i]
#include <cmath>
#include <optional>

#include "jit/nests/best_in_lanes.h"
#include "jit/nests/nests.h"
#include "jit/nests/radix_sort.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

/// Rows up to this length are ordered by counting.
constexpr std::int64_t kShortRow = 128;
/// Lists of up to this length are kept sorted by insertion.
constexpr std::int64_t kShortList = 64;
/// Elements compared at once with the last of the list, and of these, where one comes before it.
constexpr std::int64_t kSortBlock = 128;
constexpr std::int64_t kSortPiece = 16;
/// Longer orders do not lie on the stack.
constexpr std::int64_t kStackCount = 4096;
/// Passes for rows of unknown length: more than memory has elements for.
constexpr std::int64_t kMaxPasses = 40;

class SortNest {
 public:
  explicit SortNest(NestContext& ctx)
      : ctx_(ctx), b_(ctx.builder()), x_(ctx.operand_sizes(0)), out_(ctx.output_sizes()) {
    const std::int64_t axis = ctx.node().integer("axis");
    axis_ = static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(x_.size()) : axis);
    length_ = x_[axis_];
    dtype_ = ctx.node().input(0).meta().dtype;
    descending_ = ctx.node().flag(ctx.node().op_name() == "topk" ? "largest" : "descending");
  }

  void build() {
    std::vector<SymExpr> rows = x_;
    rows[axis_] = 1;
    const SymExpr extent = base::product(rows);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    row_ = delinearize(p, rows, b_.facts());
    if (has_short_list()) {
      collect_best();
      return write();
    }
    if (is_long() && !on_cuda()) {
      order_by_digits();
      return write();
    }
    order_ = add_order(length_);
    if (is_long())
      merge_runs();
    else
      count_places();
    write();
  }

 private:
  NestBufferId add_order(const SymExpr& count) {
    const NestBufferId id = b_.add_local(DType::I64, count, 0);
    NestBuffer& buffer = b_.nest().buffers[id];
    if (buffer.max_count > kStackCount) buffer.max_count = 0;
    return id;
  }

  Index at(const SymExpr& position) const {
    Index index = row_;
    index[axis_] = position;
    return index;
  }
  Scalar key(const SymExpr& position) { return ctx_.operand(0, at(position)); }

  Scalar before(Scalar a, Scalar b) { return comes_before(b_, a, b, descending_); }

  SymExpr bound(Scalar position) { return b_.bind(position, 0, length_ - 1, 0); }

  void count_places() {
    const SymExpr i = b_.begin_for(length_, ForStmt::Kind::Vector);
    const Scalar mine = key(i);
    const Scalar start = b_.i64(0);
    const SymExpr j = b_.begin_for(length_, ForStmt::Kind::Serial);
    const Scalar place = b_.carry(start);
    const Scalar other = key(j);
    const Scalar tie = b_.apply(ScalarOp::Not, {before(mine, other)});
    const Scalar earlier = b_.apply(ScalarOp::And, tie, compare(b_, ScalarOp::Lt, j, i));
    const Scalar precedes = b_.apply(ScalarOp::Or, before(other, mine), earlier);
    const Scalar next = b_.apply(ScalarOp::Add, place, b_.convert(precedes, DType::I64));
    const Scalar result = b_.set_next(place, next);
    b_.end_for();
    b_.store(order_, bound(result), b_.from_index(i));
    b_.end_for();
  }

  bool on_cuda() const { return ctx_.options().target == LowerOptions::Target::Cuda; }
  bool is_long() const { return !length_.is_constant() || length_.constant() > kShortRow; }

  void order_by_digits() {
    by_digits_.emplace(b_, length_, dtype_, descending_);
    const auto element = [&](const SymExpr& position) { return key(position); };
    const SymExpr& wanted = out_[axis_];
    if (wanted == length_)
      by_digits_->order_all(element);
    else
      by_digits_->order_first(wanted, element);
  }

  /// On CUDA not: elements would be inserted one after the other, by one thread.
  bool has_short_list() const {
    const SymExpr& wanted = out_[axis_];
    return is_long() && !on_cuda() && wanted.is_constant() && wanted.constant() >= 1 &&
           wanted.constant() <= kShortList && inserts_few(wanted.constant());
  }

  /// Whether the list takes less time than digits do. Of n elements in any order, k * (1 + ln(n / k)) are inserted. One takes
  /// 40 ns; digits take 2.5 ns for an element and 1.5 us for a row.
  bool inserts_few(std::int64_t wanted) const {
    if (!length_.is_constant()) return true;
    const auto k = static_cast<double>(wanted), n = static_cast<double>(length_.constant());
    return 16 * k * (1 + std::log(n / k)) <= n + 600;
  }

  void collect_best() {
    wanted_ = out_[axis_].constant();
    order_ = b_.add_local(DType::I64, wanted_, wanted_);
    best_ = b_.add_local(dtype_, wanted_, wanted_);
    const SymExpr first = b_.begin_for(wanted_, ForStmt::Kind::Serial);
    insert(first, first);
    b_.end_for();
    const SymExpr rest = length_ - wanted_;
    const SymExpr blocks = ceildiv(rest, kSortBlock);
    const SymExpr begin = SymExpr(b_.begin_for(blocks, ForStmt::Kind::Serial)) * kSortBlock;
    const SymExpr count = b_.simplify(min(kSortBlock, rest - begin));
    b_.begin_if(any_is_better(begin + wanted_, count));
    const SymExpr pieces = ceildiv(count, kSortPiece);
    const SymExpr piece = SymExpr(b_.begin_for(pieces, ForStmt::Kind::Serial)) * kSortPiece;
    const SymExpr few = b_.simplify(min(kSortPiece, count - piece));
    b_.begin_if(any_is_better(begin + wanted_ + piece, few));
    const SymExpr k = b_.begin_for(few, ForStmt::Kind::Serial);
    const SymExpr position = begin + wanted_ + piece + k;
    b_.begin_if(before(key(position), b_.load(best_, wanted_ - 1)));
    insert(position, wanted_);
    b_.end_if();
    b_.end_for();
    b_.end_if();
    b_.end_for();
    b_.end_if();
    b_.end_for();
  }

  /// Whether one of `count` elements from `first` on comes before the last of the list.
  Scalar any_is_better(const SymExpr& first, const SymExpr& count) {
    const Scalar last = b_.load(best_, wanted_ - 1);
    const SymExpr i = b_.begin_for(count, ForStmt::Kind::Vector);
    const Scalar better = before(key(first + i), last);
    const Scalar any = b_.reduce(ir::ReduceOp::Or, DType::Bool, {&better, 1})[0];
    b_.end_for();
    return any;
  }

  /// Puts the element at `position`, which follows all of the list, into its place among the first `count`
  /// entries: behind those that do not come after it.
  void insert(const SymExpr& position, const SymExpr& count) {
    const Scalar mine = key(position);
    const SymExpr e = b_.begin_for(count, ForStmt::Kind::Vector);
    const Scalar stays = b_.apply(ScalarOp::Not, {before(mine, b_.load(best_, e))});
    const Scalar one_if = b_.convert(stays, DType::I64);
    const Scalar place = b_.reduce(ir::ReduceOp::Sum, DType::I64, {&one_if, 1})[0];
    b_.end_for();
    b_.begin_if(b_.apply(ScalarOp::Lt, place, b_.i64(wanted_)));
    const SymExpr at = b_.bind(place, 0, wanted_ - 1, 0);
    const SymExpr last = min(count, wanted_ - 1);
    const SymExpr step = b_.begin_for(max(0, last - at), ForStmt::Kind::Serial);
    b_.store(order_, last - step, b_.load(order_, last - step - 1));
    b_.store(best_, last - step, b_.load(best_, last - step - 1));
    b_.end_for();
    b_.store(order_, at, b_.from_index(position));
    b_.store(best_, at, mine);
    b_.end_if();
  }

  void merge_runs() {
    const NestBufferId merged = add_order(length_);
    const SymExpr first = b_.begin_for(length_, ForStmt::Kind::Vector);
    b_.store(order_, first, b_.from_index(first));
    b_.end_for();
    const SymExpr pass = b_.begin_for(passes(), ForStmt::Kind::Serial);
    const Scalar width = b_.apply(ScalarOp::Shl, b_.i64(1), b_.from_index(pass));
    if (!length_.is_constant()) b_.begin_if(b_.apply(ScalarOp::Lt, width, b_.from_index(length_)));
    const SymExpr i = b_.begin_for(length_, ForStmt::Kind::Vector);
    const Scalar from = b_.load(order_, i);
    const SymExpr to = bound(place_in_pair(i, from, pass, width));
    b_.store(merged, to, from);
    b_.end_for();
    const SymExpr k = b_.begin_for(length_, ForStmt::Kind::Vector);
    b_.store(order_, k, b_.load(merged, k));
    b_.end_for();
    if (!length_.is_constant()) b_.end_if();
    b_.end_for();
  }

  std::int64_t passes() const {
    if (!length_.is_constant()) return kMaxPasses;
    std::int64_t count = 0;
    while ((std::int64_t{1} << count) < length_.constant()) ++count;
    return count;
  }

  /// Where position i of this pass goes. Runs are of `width` elements, 2 to the power of `pass`.
  Scalar place_in_pair(const SymExpr& i, Scalar from, const SymExpr& pass, Scalar width) {
    const Scalar self = b_.from_index(i);
    const Scalar length = b_.from_index(length_);
    const Scalar shift = b_.from_index(pass);
    const Scalar run = b_.apply(ScalarOp::Shr, self, shift);
    const Scalar begin = b_.apply(ScalarOp::Shl, run, shift);
    const Scalar odd = b_.apply(ScalarOp::And, run, b_.i64(1));
    const Scalar is_left = b_.apply(ScalarOp::Eq, odd, b_.i64(0));
    const Scalar after = b_.apply(ScalarOp::Add, begin, width);
    const Scalar previous = b_.apply(ScalarOp::Sub, begin, width);
    const Scalar other = select(b_, is_left, after, previous);
    const Scalar low = b_.apply(ScalarOp::Min, other, length);
    const Scalar high = b_.apply(ScalarOp::Min, b_.apply(ScalarOp::Add, other, width), length);
    const Scalar found = search(key(bound(from)), is_left, low, high, pass);
    // Of a left run: i + found - low. Of a right one, the pair begins at `low`: i - begin + found.
    const Scalar base = select(b_, is_left, low, begin);
    return b_.apply(ScalarOp::Add, b_.apply(ScalarOp::Sub, self, base), found);
  }

  /// The first position in [low, high) of the other run that does not come before `mine`; of equal
  /// elements those of the left run come first.
  Scalar search(Scalar mine, Scalar is_left, Scalar low, Scalar high, const SymExpr& pass) {
    return first_that_does_not(b_, low, high, pass + 1, [&](Scalar middle, Scalar open) {
      const Scalar position = b_.load(order_, bound(middle), open.id);
      const Scalar other = key(bound(position));
      const Scalar strictly = before(other, mine);
      const Scalar weakly = b_.apply(ScalarOp::Not, {before(mine, other)});
      return select(b_, is_left, strictly, weakly);
    });
  }

  void write() {
    const SymExpr k = b_.begin_for(out_[axis_], ForStmt::Kind::Vector);
    const Scalar from = by_digits_ ? by_digits_->position(k) : b_.load(order_, k);
    const Scalar value = key(bound(from));
    ctx_.result(0, at(k), value);
    ctx_.result(1, at(k), from);
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> x_, out_;
  std::size_t axis_ = 0;
  SymExpr length_;
  DType dtype_ = DType::F32;
  bool descending_ = false;
  Index row_;
  NestBufferId order_ = 0;
  std::optional<RadixSort> by_digits_;
  NestBufferId best_ = 0;    ///< keys of the list
  std::int64_t wanted_ = 0;  ///< entries of the list
};

void build_sort(NestContext& ctx) {
  if (ctx.options().target == LowerOptions::Target::Cpu && takes_best_in_lanes(ctx.node()))
    build_best_in_lanes(ctx);
  else
    SortNest(ctx).build();
}

}  // namespace

const NestRecipe kSortRecipe{.name = "sort", .memory_operands = 0b1, .build = build_sort};

}  // namespace heddle::jit
