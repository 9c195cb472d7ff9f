// scatter_elements, scatter_nd and index_put as nests: a copy of x into which updates go one after the
// other. Parts that no update can cross are parallel. A call that overwrites x does without the copy.
//
//   for p in independent parts of x (parallel)
//     copy the part of x
//     for update in order (serial)
//       for column (vector): result[destination, column] = join(result[the same], update)
#include <string>

#include "ir/op.h"
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

/// `index` of a larger shape in a tensor of `sizes` that broadcasts to it.
Index broadcast_index(const Index& index, std::span<const SymExpr> sizes) {
  Index result;
  const std::size_t missing = index.size() - sizes.size();
  for (std::size_t d = 0; d < sizes.size(); ++d)
    result.push_back(sizes[d].is_constant(1) ? SymExpr(0) : index[missing + d]);
  return result;
}

class ScatterBase {
 public:
  explicit ScatterBase(NestContext& ctx)
      : ctx_(ctx), b_(ctx.builder()), x_(ctx.operand_sizes(0)), out_(ctx.output_memory()) {}

 protected:
  /// result[position] = the old one joined with `update`
  void join(const SymExpr& position, Scalar update, const Mask& mask) {
    if (const auto op = join_of(reduction()))
      update = b_.apply(*op, {b_.load(out_, position, id_of(mask)), update});
    b_.store(out_, position, update, id_of(mask));
  }

  /// Whether there is one column, which on the CPU takes no loop.
  bool has_one_column() const {
    return columns_.is_constant(1) && ctx_.options().target != LowerOptions::Target::Cuda;
  }

  /// Opens the vector loop over the columns of this part, which end_columns() closes; gives the column in x.
  SymExpr begin_columns() {
    if (has_one_column()) return 0;
    const SymExpr count = b_.simplify(min(width_, columns_ - begin_));
    const Symbol column = b_.begin_for(count, ForStmt::Kind::Vector);
    return begin_ + SymExpr(column);
  }
  void end_columns() {
    if (!has_one_column()) b_.end_for();
  }

  /// Columns split into blocks of `width`: sets the parallel axis, gives the row of the part.
  SymExpr begin_parts(const SymExpr& rows, const SymExpr& columns, const SymExpr& width) {
    columns_ = columns;
    width_ = width;
    const SymExpr blocks = columns == width ? SymExpr(1) : ceildiv(columns, width);
    const SymExpr extent = rows * blocks;
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    begin_ = b_.simplify(mod(p, blocks)) * width;
    return b_.simplify(floordiv(p, blocks));
  }

  /// Whether x lies in the memory of the result already.
  bool in_place() const { return ir::overwrites(ctx_.node(), 0); }

  void copy(const SymExpr& position) {
    const Index index = delinearize(position, x_, b_.facts());
    b_.store(out_, position, ctx_.operand(0, index));
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> x_;
  const NestBufferId out_;
  SymExpr begin_, columns_, width_;

 private:
  std::string reduction() const {
    const ir::Node& node = ctx_.node();
    if (node.op_name() == "index_put") return node.flag("accumulate") ? "add" : "none";
    return node.string("reduction");
  }
};

/// Updates stay in their column of the dimensions after the axis and in their row of those before it.
class ScatterElements : ScatterBase {
 public:
  explicit ScatterElements(NestContext& ctx) : ScatterBase(ctx), updates_(ctx.operand_sizes(1)) {
    const std::int64_t axis = ctx.node().integer("axis");
    axis_ = static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(x_.size()) : axis);
    length_ = x_[axis_];
  }

  void build() {
    const std::span<const SymExpr> sizes(x_);
    const SymExpr columns = base::product(sizes.subspan(axis_ + 1));
    const SymExpr width = columns.is_constant(1) ? columns : SymExpr(kScatterColumns);
    const auto outer = sizes.first(axis_);
    row_ = begin_parts(base::product(outer), columns, width);
    outer_ = delinearize(row_, outer, b_.facts());
    if (!in_place()) copy_part();
    const Symbol k = b_.begin_for(updates_[axis_], ForStmt::Kind::Serial);
    update(k, begin_columns());
    end_columns();
    b_.end_for();
  }

 private:
  SymExpr position(const SymExpr& k, const SymExpr& column) const {
    return (row_ * length_ + k) * columns_ + column;
  }

  void copy_part() {
    const Symbol k = b_.new_axis(length_);
    if (columns_.is_constant(1)) {
      b_.begin_for(k, length_, ForStmt::Kind::Vector);
      copy(position(k, 0));
      b_.end_for();
      return;
    }
    b_.begin_for(k, length_, ForStmt::Kind::Serial);
    copy(position(k, begin_columns()));
    end_columns();
    b_.end_for();
  }

  void update(const SymExpr& k, const SymExpr& column) {
    const std::span<const SymExpr> sizes(x_);
    const Index inner = delinearize(column, sizes.subspan(axis_ + 1), b_.facts());
    Index from = outer_;
    from.push_back(k);
    from.insert(from.end(), inner.begin(), inner.end());
    Mask mask;
    for (std::size_t d = 0; d < from.size(); ++d)
      if (d != axis_) mask = where_less(b_, mask, from[d], updates_[d]);
    const Scalar named = ctx_.operand(1, from, id_of(mask));
    const SymExpr to = wrapped_index(ctx_, named, length_, mask);
    const Scalar value = ctx_.operand(2, from, id_of(mask));
    join(position(to, column), value, where_less(b_, mask, 0, length_));
  }

  const std::vector<SymExpr> updates_;
  std::size_t axis_ = 0;
  SymExpr length_, row_;
  Index outer_;
};

/// Each update is a slice of x named by its first coordinates.
class ScatterSlices : ScatterBase {
 public:
  explicit ScatterSlices(NestContext& ctx)
      : ScatterBase(ctx), put_(ctx.node().op_name() == "index_put") {
    if (put_) {
      coordinates_ = ctx.node().inputs().size() - 2;
      batch_ = broadcast_of_indices();
    } else {
      const std::vector<SymExpr> indices = ctx.operand_sizes(1);
      coordinates_ = static_cast<std::size_t>(indices.back().constant());
      batch_.assign(indices.begin(), indices.end() - 1);
    }
  }

  void build() {
    const std::span<const SymExpr> sizes(x_);
    slice_ = sizes.subspan(coordinates_);
    const SymExpr columns = base::product(slice_);
    const bool small = columns.is_constant() && columns.constant() <= kScatterColumns;
    begin_parts(1, columns, small ? columns : SymExpr(kScatterColumns));
    if (!in_place()) copy_part(small);
    const SymExpr count = base::product(batch_);
    const Symbol j = b_.begin_for(count, ForStmt::Kind::Serial);
    update(delinearize(j, batch_, b_.facts()));
    b_.end_for();
  }

 private:
  Index broadcast_of_indices() const {
    std::size_t rank = 0;
    for (std::size_t d = 0; d < coordinates_; ++d)
      rank = std::max(rank, ctx_.operand_sizes(2 + d).size());
    Index result(rank, SymExpr(1));
    for (std::size_t d = 0; d < coordinates_; ++d) {
      const std::vector<SymExpr> sizes = ctx_.operand_sizes(2 + d);
      for (std::size_t k = 0; k < sizes.size(); ++k) {
        SymExpr& size = result[rank - sizes.size() + k];
        if (size.is_constant(1)) size = sizes[k];
      }
    }
    return result;
  }

  void copy_part(bool small) {
    const SymExpr rows = base::product(std::span(x_).first(coordinates_));
    const SymExpr count = small ? b_.simplify(rows * columns_) : rows;
    const Symbol k = b_.begin_for(count, small ? ForStmt::Kind::Vector : ForStmt::Kind::Serial);
    if (small) {
      copy(k);
    } else {
      copy(SymExpr(k) * columns_ + begin_columns());
      end_columns();
    }
    b_.end_for();
  }

  Scalar coordinate(const Index& at, std::size_t d) {
    if (put_) return ctx_.operand(2 + d, broadcast_index(at, ctx_.operand_sizes(2 + d)));
    Index index = at;
    index.push_back(static_cast<std::int64_t>(d));
    return ctx_.operand(1, index);
  }

  void update(const Index& at) {
    SymExpr row = 0;
    Mask exists;
    for (std::size_t d = 0; d < coordinates_; ++d) {
      row = row * x_[d] + wrapped_index(ctx_, coordinate(at, d), x_[d], std::nullopt);
      exists = where_less(b_, exists, 0, x_[d]);
    }
    const SymExpr column = begin_columns();
    const Index within = delinearize(column, slice_, b_.facts());
    Index from = at;
    from.insert(from.end(), within.begin(), within.end());
    if (put_) from = broadcast_index(from, ctx_.operand_sizes(1));
    join(row * columns_ + column, ctx_.operand(put_ ? 1 : 2, from), exists);
    end_columns();
  }

  const bool put_;
  std::size_t coordinates_ = 0;
  Index batch_;
  std::span<const SymExpr> slice_;
};

void build_scatter(NestContext& ctx) {
  if (ctx.node().op_name() == "scatter_elements")
    ScatterElements(ctx).build();
  else
    ScatterSlices(ctx).build();
}

}  // namespace

const NestRecipe kScatterRecipe{.name = "scatter", .build = build_scatter};

}  // namespace heddle::jit
