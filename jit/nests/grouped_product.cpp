// grouped_matmul as a nest; on CUDA in product form, whose tiles the emitter chooses.
//
//   for p in column tiles x slots for row tiles (parallel; slots innermost, so that the columns of a matrix stay in the
//                                                second-level cache)
//     for g in groups and one more (serial): carry where the slot's tile lies
//     acc[rows, columns] = x[rows, k] . w[group, k, columns]
//     for row in rows: for column in columns (vector): result(row, column, acc[row, column])
//
// Panels of packed_grouped_matmul are columns of tiles already. Each group ends in a tile of its own, so there are slots
// for as many tiles as there may be; those left over have no rows. Rows past the last group are a group whose products
// are none.
#include "jit/lower/index.h"
#include "jit/lower/pack_weights.h"
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

constexpr std::int64_t kGroupTileRows = 32;
constexpr std::int64_t kGroupTileColumns = kPanelColumns;
/// Rows for which a copy of a matrix does not pay.
constexpr std::int64_t kFewRows = 4;

class GroupedNest {
 public:
  explicit GroupedNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        rows_(ctx.output_sizes()[0]),
        columns_(ctx.output_sizes()[1]),
        groups_(ctx.operand_sizes(1)[0]),
        depth_(ctx.operand_sizes(0)[1]),
        left_(*ctx.affine(0)),
        right_(*ctx.affine(1)),
        ends_(*ctx.affine(2)),
        is_packed_(ctx.node().op_name() == "packed_grouped_matmul") {}

  void build() {
    ProductForm form;
    form.batches = 1;
    form.rows = rows_;
    form.columns = columns_;
    const SymExpr slots = ProductGroups::slots(rows_, groups_, kGroupTileRows);
    const SymExpr column_tiles = ceildiv(columns_, kGroupTileColumns);
    const SymExpr extent = column_tiles * slots;
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    assume_elements(ctx_.output_sizes(), b_.facts());
    const SymExpr slot = mod(p, slots);
    find_rows(slot, form);
    form.column_begin =
        b_.bind(b_.from_index(floordiv(p, slots) * kGroupTileColumns), 0, columns_ - 1, 0).symbol();
    multiply(form);
    write(form);
    b_.nest().work = rows_ * columns_ * depth_ * 2;
    if (ctx_.options().target == LowerOptions::Target::Cuda) b_.nest().product = std::move(form);
  }

 private:
  /// Goes through the groups, and past the last one those rows that belong to none, until `slot` tiles are passed.
  void find_rows(const SymExpr& slot, ProductForm& form) {
    const Scalar none = b_.i64(0);
    const Scalar all = b_.from_index(rows_);
    const Scalar tile = b_.i64(kGroupTileRows);
    const Scalar rest = b_.i64(kGroupTileRows - 1);
    const Scalar wanted = b_.from_index(slot);
    const Scalar beyond = b_.from_index(groups_);
    const Symbol g = b_.begin_for(groups_ + 1, ForStmt::Kind::Serial);
    const Scalar begin = b_.carry(none);  // of group g
    // Tiles before the slot's, from group g on; negative: it is passed.
    const Scalar ahead = b_.carry(wanted);
    const Scalar group = b_.carry(beyond);
    const Scalar first = b_.carry(all);
    const Scalar last = b_.carry(all);
    const Scalar is_group = compare(b_, ScalarOp::Lt, g, groups_);
    const SymExpr at = ends_.offset + ends_.strides[0] * SymExpr(g);
    const Scalar given = b_.load(ends_.buffer, at, is_group.id);
    const Scalar bounded = b_.apply(ScalarOp::Max, begin, b_.apply(ScalarOp::Min, given, all));
    const Scalar end = b_.apply(ScalarOp::Select, {is_group, bounded, all});
    const Scalar length = b_.apply(ScalarOp::Sub, end, begin);
    const Scalar tiles = b_.apply(ScalarOp::Div, b_.apply(ScalarOp::Add, length, rest), tile);
    const Scalar is_here = b_.apply(ScalarOp::And, b_.apply(ScalarOp::Ge, ahead, none),
                                    b_.apply(ScalarOp::Lt, ahead, tiles));
    const Scalar row = b_.apply(ScalarOp::Add, begin, b_.apply(ScalarOp::Mul, ahead, tile));
    const Scalar number = b_.from_index(g);
    b_.set_next(begin, end);
    b_.set_next(ahead, b_.apply(ScalarOp::Sub, ahead, tiles));
    const Scalar at_group =
        b_.set_next(group, b_.apply(ScalarOp::Select, {is_here, number, group}));
    const Scalar at_first = b_.set_next(first, b_.apply(ScalarOp::Select, {is_here, row, first}));
    const Scalar at_last = b_.set_next(last, b_.apply(ScalarOp::Select, {is_here, end, last}));
    b_.end_for();
    const Scalar has_matrix = b_.apply(ScalarOp::Lt, at_group, beyond);
    const Scalar products = b_.apply(ScalarOp::Select, {has_matrix, b_.from_index(depth_), none});
    const auto place = [&](Scalar value, const SymExpr& high) {
      return b_.bind(value, 0, high, 0).symbol();
    };
    form.batch = place(at_group, max(0, groups_ - 1));
    form.row_begin = place(at_first, rows_);
    form.groups = ProductGroups{.ends = ends_.buffer,
                                .offset = ends_.offset,
                                .stride = ends_.strides[0],
                                .count = groups_,
                                .depth = depth_,
                                .row_end = place(at_last, rows_),
                                .products = place(products, depth_)};
  }

  void multiply(const ProductForm& form) {
    here_ = min(kGroupTileRows, SymExpr(form.groups->row_end) - SymExpr(form.row_begin));
    width_ = min(kGroupTileColumns, columns_ - SymExpr(form.column_begin));
    accumulator_ = accumulator_of(ctx_.node().output().dtype);
    acc_ = b_.add_local(accumulator_, kGroupTileRows * kGroupTileColumns,
                        kGroupTileRows * kGroupTileColumns);
    const TileOperand a{left_.buffer, left_.offset + left_.strides[0] * SymExpr(form.row_begin),
                        left_.strides[0], left_.strides[1]};
    const std::span<const SymExpr> strides = right_.strides;
    const SymExpr matrix = right_.offset + strides[0] * SymExpr(form.batch);
    if (is_packed_) {
      const SymExpr number = floordiv(form.column_begin, kGroupTileColumns);
      return multiply_parts(form.groups->products, a,
                            {right_.buffer, matrix + strides[1] * number, strides[2], strides[3]});
    }
    const TileOperand b{right_.buffer, matrix + strides[2] * SymExpr(form.column_begin), strides[1],
                        strides[2]};
    if (ctx_.options().target == LowerOptions::Target::Cuda)
      contract(form.groups->products, a, b, false);
    else
      multiply_parts(form.groups->products, a, b);
  }

  /// Part of the depth by part: many rows share a copy of the matrix's part in the accumulator's dtype, which stays in the
  /// first-level cache, and few read it where it lies.
  void multiply_parts(const SymExpr& products, TileOperand a, TileOperand b) {
    const Symbol k = b_.begin_for(here_ * kGroupTileColumns, ForStmt::Kind::Vector);
    b_.store(acc_, k, zero(b_, accumulator_));
    b_.end_for();
    const Symbol part = b_.begin_for(ceildiv(products, kPanelDepth), ForStmt::Kind::Serial);
    const SymExpr begin = SymExpr(part) * kPanelDepth;
    const SymExpr depth = min(kPanelDepth, products - begin);
    a.base += begin * a.column_stride;
    b.base += begin * b.row_stride;
    if (b.row_stride.is_constant(1) || (is_packed_ && !is_narrow())) {
      contract(depth, a, b,
               true);  // columns of neighbours are turned round by the contraction itself
    } else {
      b_.begin_if(compare(b_, ScalarOp::Gt, here_, kFewRows));
      contract(depth, a, copied_part(b_, b, depth, width_, accumulator_), true);
      b_.end_if();
      b_.begin_if(compare(b_, ScalarOp::Le, here_, kFewRows));
      contract(depth, a, b, true);
      b_.end_if();
    }
    b_.end_for();
  }

  bool is_narrow() const { return ctx_.node().output().dtype != accumulator_; }

  void contract(const SymExpr& depth, TileOperand a, TileOperand b, bool accumulate) {
    b_.contract({.acc = acc_,
                 .dtype = accumulator_,
                 .tile_rows = kGroupTileRows,
                 .tile_columns = kGroupTileColumns,
                 .rows = here_,
                 .columns = width_,
                 .depth = depth,
                 .a = std::move(a),
                 .b = std::move(b),
                 .accumulate = accumulate,
                 .tf32 = !is_packed_ && ctx_.node().flag("tf32")});
  }

  void write(const ProductForm& form) {
    const Symbol row = b_.begin_for(here_, ForStmt::Kind::Serial);
    const Symbol column = b_.begin_for(width_, ForStmt::Kind::Vector);
    const Scalar sum = b_.load(acc_, SymExpr(row) * kGroupTileColumns + SymExpr(column));
    const Index index = {SymExpr(form.row_begin) + SymExpr(row),
                         SymExpr(form.column_begin) + SymExpr(column)};
    ctx_.result(0, index, b_.convert(sum, ctx_.node().output().dtype));
    b_.end_for();
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const SymExpr rows_, columns_, groups_, depth_;
  const AffineOperand left_, right_, ends_;
  const bool is_packed_;
  DType accumulator_ = DType::F32;
  NestBufferId acc_ = 0;
  SymExpr here_, width_;  ///< rows and columns of the tile
};

void build_grouped_product(NestContext& ctx) { GroupedNest(ctx).build(); }

}  // namespace

const NestRecipe kGroupedMatmulRecipe{.name = "grouped_matmul",
                                      .memory_operands = 0b111,
                                      .epilogue = true,
                                      .build = build_grouped_product};

const NestRecipe kPackedGroupedMatmulRecipe{.name = "packed_grouped_matmul",
                                            .memory_operands = 0b111,
                                            .epilogue = true,
                                            .build = build_grouped_product};

}  // namespace heddle::jit
