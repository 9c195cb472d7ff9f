#include "jit/nests/best_in_lanes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "jit/nests/radix_sort.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

/// Rows and elements of a part that lie in the first-level cache.
constexpr std::int64_t kPart = 32;
/// Places of a list that stay in registers.
constexpr std::int64_t kPlaces = 8;
/// Longer lists take longer than the digits of keys do.
constexpr std::int64_t kMostWanted = 64;
/// Longer rows do not leave positions the bits they need.
constexpr std::int64_t kLongest = std::int64_t{1} << 30;
/// Rows of which one is a vector's lane.
constexpr std::int64_t kRowsAtOnce = 16;
/// Up to this many neighbouring results of a row are stored by all lanes at once.
constexpr std::int64_t kMostAtOnce = 8;

std::size_t axis_of(const ir::Node& node) {
  const std::int64_t axis = node.integer("axis");
  return static_cast<std::size_t>(axis < 0 ? axis + node.input(0).meta().rank() : axis);
}

/// Nanoseconds of a row of n elements whose first k are wanted, as sort.cpp orders it.
double row_by_row(double n, double k) {
  constexpr double kCounted = 128;
  if (n <= kCounted) return 25 + 0.16 * n * n;
  return std::min(40 * k * (1 + std::log(n / k)) + 0.1 * n, 2.5 * n + 1500);
}

/// Nanoseconds of as many rows as a vector has lanes, or fewer.
double in_lanes(double n, double k) { return (2.5 + 1.4 * k) * n + 30 * k; }

/// One topk. Rows are numbered along dimension rows_at_, the other dimensions by outer_.
class BestInLanes {
 public:
  explicit BestInLanes(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        x_(ctx.operand_sizes(0)),
        axis_(axis_of(ctx.node())),
        rows_at_(axis_ + 1 == x_.size() ? 0 : x_.size() - 1),
        length_(x_[axis_].constant()),
        wanted_(ctx.output_sizes()[axis_].constant()),
        groups_((wanted_ + kPlaces - 1) / kPlaces),
        places_((wanted_ + groups_ - 1) / groups_),
        largest_(ctx.node().flag("largest")) {}

  void build() {
    begin_rows();
    const bool at_once = length_ <= kPart && groups_ == 1;
    list_ = b_.add_local(DType::I64, groups_ * places_ * kPart, groups_ * places_ * kPart);
    if (!at_once) clear();
    if (groups_ > 1) waiting_ = b_.add_local(DType::I64, kPart * kPart, kPart * kPart);
    const bool turns = rows_at_ != x_.size() - 1;
    const DType dtype = ctx_.node().input(0).meta().dtype;
    if (turns) turned_ = b_.add_local(dtype, kPart * kPart, kPart * kPart);
    part_ = SymExpr(b_.begin_for((length_ + kPart - 1) / kPart, ForStmt::Kind::Serial)) * kPart;
    in_part_ = b_.simplify(min(kPart, length_ - part_));
    if (turns) turn();
    if (groups_ > 1) {
      number_all();
      const SymExpr group = b_.begin_for(groups_, ForStmt::Kind::Serial);
      pass(group, false);
      b_.end_for();
    } else {
      pass(0, at_once);
    }
    b_.end_for();
    write();
  }

 private:
  void begin_rows() {
    std::vector<SymExpr> blocks = x_;
    blocks[axis_] = 1;
    blocks[rows_at_] = ceildiv(x_[rows_at_], kPart);
    const SymExpr extent = base::product(blocks);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    at_ = delinearize(p, blocks, b_.facts());
    first_row_ = at_[rows_at_] * kPart;
    rows_ = b_.simplify(min(kPart, x_[rows_at_] - first_row_));
  }

  Index at(const SymExpr& row, const SymExpr& position) const {
    Index index = at_;
    index[rows_at_] = first_row_ + row;
    index[axis_] = position;
    return index;
  }

  SymExpr slot(const SymExpr& place, const SymExpr& row) const { return place * kPart + row; }

  void clear() {
    const SymExpr k = b_.begin_for(groups_ * places_ * kPart, ForStmt::Kind::Vector);
    b_.store(list_, k, b_.i64(std::numeric_limits<std::int64_t>::max()));
    b_.end_for();
  }

  void turn() {
    const SymExpr r = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const SymExpr c = b_.begin_for(in_part_, ForStmt::Kind::Vector);
    b_.store(turned_, slot(c, r), ctx_.operand(0, at(r, part_ + c)));
    b_.end_for();
    b_.end_for();
  }

  /// The number that stands for an element of the part.
  Scalar number(const SymExpr& c, const SymExpr& r) {
    const bool turns = rows_at_ != x_.size() - 1;
    const Scalar x = turns ? b_.load(turned_, slot(c, r)) : ctx_.operand(0, at(r, part_ + c));
    const Scalar key = b_.convert(sort_key(b_, x, largest_), DType::I64);
    const Scalar high = b_.apply(ScalarOp::Shl, key, b_.i64(32));
    const Scalar ordered = b_.apply(ScalarOp::Xor, high, b_.i64(kSign));
    return b_.apply(ScalarOp::Add, ordered, b_.from_index(part_ + c));
  }

  void number_all() {
    const SymExpr r = b_.begin_for(rows_, ForStmt::Kind::Vector);
    const SymExpr c = b_.begin_for(in_part_, ForStmt::Kind::Serial);
    b_.store(waiting_, slot(c, r), number(c, r));
    b_.end_for();
    b_.end_for();
  }

  /// All elements of the part through one group of places, `empty` before.
  void pass(const SymExpr& group, bool empty) {
    const SymExpr r = b_.begin_for(rows_, ForStmt::Kind::Vector);
    const SymExpr first = group * places_;
    std::vector<Scalar> before;
    for (std::int64_t p = 0; p < places_; ++p)
      before.push_back(empty ? b_.i64(std::numeric_limits<std::int64_t>::max())
                             : b_.load(list_, slot(first + p, r)));
    const SymExpr c = b_.begin_for(in_part_, ForStmt::Kind::Serial);
    std::vector<Scalar> now;
    for (const Scalar& best : before) now.push_back(b_.carry(best));
    Scalar passing = groups_ > 1 ? b_.load(waiting_, slot(c, r)) : number(c, r);
    std::vector<Scalar> after;
    for (const Scalar& best : now) {
      const Scalar stays = b_.apply(ScalarOp::Min, best, passing);
      passing = b_.apply(ScalarOp::Max, best, passing);
      after.push_back(b_.set_next(best, stays));
    }
    if (groups_ > 1) b_.store(waiting_, slot(c, r), passing);
    b_.end_for();
    for (std::int64_t p = 0; p < places_; ++p)
      b_.store(list_, slot(first + p, r), after[static_cast<std::size_t>(p)]);
    b_.end_for();
  }

  struct Found {
    Scalar value;
    Scalar position;
  };
  Found found(const SymExpr& place, const SymExpr& r) {
    const Scalar number = b_.load(list_, slot(place, r));
    const Scalar position = b_.apply(ScalarOp::And, number, b_.i64(kLongest - 1));
    return {ctx_.operand(0, at(r, b_.bind(position, 0, length_ - 1, 0))), position};
  }

  void write() {
    if (rows_at_ == x_.size() - 1) {
      const SymExpr place = b_.begin_for(wanted_, ForStmt::Kind::Serial);
      const SymExpr r = b_.begin_for(rows_, ForStmt::Kind::Vector);
      write_one(place, r);
      b_.end_for();
      b_.end_for();
    } else if (wanted_ <= kMostAtOnce) {
      write_rows();
    } else {
      const SymExpr r = b_.begin_for(rows_, ForStmt::Kind::Serial);
      const SymExpr place = b_.begin_for(wanted_, ForStmt::Kind::Vector);
      write_one(place, r);
      b_.end_for();
      b_.end_for();
    }
  }

  void write_one(const SymExpr& place, const SymExpr& r) {
    const auto [value, position] = found(place, r);
    ctx_.result(0, at(r, place), value);
    ctx_.result(1, at(r, place), position);
  }

  /// Neighbours one behind the other, so that the emitter sees that they make rows.
  void write_rows() {
    const SymExpr r = b_.begin_for(rows_, ForStmt::Kind::Vector);
    std::vector<Found> all;
    for (std::int64_t p = 0; p < wanted_; ++p) all.push_back(found(p, r));
    for (std::int64_t p = 0; p < wanted_; ++p)
      ctx_.result(0, at(r, p), all[static_cast<std::size_t>(p)].value);
    for (std::int64_t p = 0; p < wanted_; ++p)
      ctx_.result(1, at(r, p), all[static_cast<std::size_t>(p)].position);
    b_.end_for();
  }

  static constexpr std::int64_t kSign = std::numeric_limits<std::int64_t>::min();

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> x_;
  const std::size_t axis_, rows_at_;
  const std::int64_t length_, wanted_;
  const std::int64_t groups_;  ///< of places
  const std::int64_t places_;  ///< of a group
  const bool largest_;
  Index at_;           ///< of a block of rows
  SymExpr first_row_;  ///< of the block
  SymExpr rows_;       ///< of the block
  SymExpr part_;       ///< position of the part's first element
  SymExpr in_part_;    ///< elements
  NestBufferId list_ = 0, turned_ = 0;
  NestBufferId waiting_ = 0;  ///< elements between two groups
};

}  // namespace

bool takes_best_in_lanes(const ir::Node& node) {
  if (node.op_name() != "topk") return false;
  const ir::TensorMeta& x = node.input(0).meta();
  const std::size_t axis = axis_of(node);
  const auto length = x.sizes[axis].as_constant();
  const auto wanted = node.output().sizes[axis].as_constant();
  if (size_of(x.dtype) > 4 || !length || !wanted || *length > kLongest || *wanted < 1 ||
      *wanted > kMostWanted)
    return false;
  SymExpr rows = x.sizes.back();
  if (axis + 1 == x.sizes.size()) {
    rows = 1;
    for (std::size_t d = 0; d < axis; ++d) rows *= x.sizes[d];
  }
  const std::int64_t lanes = std::min(rows.as_constant().value_or(kRowsAtOnce), kRowsAtOnce);
  const auto n = static_cast<double>(*length);
  const auto k = static_cast<double>(*wanted);
  return in_lanes(n, k) < row_by_row(n, k) * static_cast<double>(lanes);
}

void build_best_in_lanes(NestContext& ctx) { BestInLanes(ctx).build(); }

}  // namespace heddle::jit
