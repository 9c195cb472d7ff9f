// matmul as a nest: output tiles in parallel, one contraction over the whole depth a tile, then the fused
// epilogue row by row.
//
//   for p in batch x blocks x column tiles x row tiles of a block (parallel)
//     acc[rows, columns] = a[rows, k] . b[k, columns]
//     for row in rows: for column in columns (vector): result(row, column, acc[row, column])
//
// A panel of packed_split_matmul has as many columns for each of several right matrices, whose sums of one element are all there
// at once.
//
// matmul_tiles.h says how many rows a tile and tiles a block have. Right operands that are no panels have one block: their columns
// stay in the cache.
//
// A right operand that lies along the depth (k transposed, as in q.kT) is the contraction's own business, which turns it for each
// tile: on the CPU tiles have more rows then.
// One that lies along neither is first packed, block of depth by block of depth, into a local tile. The panels
// of packed_matmul are tiles already, and so are those of packed_int8_matmul, which multiplies four bytes at a time, and of
// packed_bf16_matmul, which multiplies two elements. Those of packed_bits_matmul are numbers of a few bits: few rows make them
// numbers as they go, others share a copy of a part of a panel.
// Where all matrices on the left are multiplied by one on the right and lie behind each other, they are one matrix
// with all their rows.
#include <algorithm>

#include "jit/lower/index.h"
#include "jit/lower/pack_weights.h"
#include "jit/nests/matmul_tiles.h"
#include "jit/nests/nests.h"
#include "jit/nests/product.h"
#include "jit/nests/support.h"

namespace heddle::jit {

namespace {

using ir::ScalarOp;

constexpr std::int64_t kTileColumns = kPanelColumns;
constexpr std::int64_t kPackDepth = 128;
/// Of a part of a panel where blocks of 16 registers pass over it several times: half a first-level cache.
constexpr std::int64_t kShortPanelBytes = 16 * 1024;

class MatmulNest {
 public:
  explicit MatmulNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        out_(ctx.output_sizes()),
        left_(*ctx.affine(0)),
        right_(*ctx.affine(1)),
        depth_(ctx.operand_sizes(0).back()),
        group_(group_of(ctx.node().op_name())),
        accumulator_(group_ == kByteGroup || ctx.node().op_name() == "int8_matmul"
                         ? DType::I32
                         : accumulator_of(ctx.node().output().dtype)),
        fixed_(ctx.node().op_name() == "fixed_bits_matmul"),
        bits_(fixed_ || ctx.node().op_name() == "packed_bits_matmul" ? ctx.node().integer("bits")
                                                                     : 0),
        split_(ctx.node().op_name() == "packed_split_matmul"),
        panels_(group_ != 1 || bits_ != 0 || split_ || ctx.node().op_name() == "packed_matmul") {
    if (split_) {
      parts_ = ctx.node().integer("parts");
      tile_columns_ = ctx.node().integer("width");
    }
    // Buffers of others come before those of the kernel's own.
    const auto has = [&](std::size_t k) {
      return ctx.node().inputs().size() > k && ctx.node().input(k);
    };
    if (group_ == kByteGroup && has(2)) pairs_fit_ = ctx.operand(2, {});
    if (group_ == kByteGroup && has(3))
      rest_ = Rest{*ctx.affine(3), *ctx.affine(4), *ctx.affine(5)};
    for (std::size_t k = 2; group_ == 1 && k < ctx.node().inputs().size() && ctx.node().input(k);
         ++k)
      beside_.push_back(*ctx.affine(k));
    if (fixed_) {
      digit_stride_ = left_.strides[1];
      left_.strides.erase(left_.strides.begin() + 1);
    }
    row_stride_ = left_.strides[left_.strides.size() - 2];
    const bool has_one = panels_ ? group_ == 1 || right_.strides.size() == 4  // of one matrix
                                 : right_.strides.size() == 2;
    if (!has_one) return;
    if (const auto even = even_row_stride(b_, left_, out_)) {
      flat_ = true;
      row_stride_ = *even;
    }
  }

  void build() {
    const std::size_t rank = out_.size();
    const std::size_t batch_dims = flat_ ? 0 : rank - 2;
    const SymExpr rows = base::product(std::span(out_).subspan(batch_dims, rank - 1 - batch_dims));
    const SymExpr columns = out_[rank - 1];
    if (reads_rows_of_right(rows)) tile_columns_ = wide_tile(rows, columns);
    const SymExpr column_tiles = ceildiv(columns, tile_columns_);
    const SymExpr batch = base::product(std::span(out_).first(batch_dims));
    if (packs_each_tile() || copies_each_tile(rows))
      tile_rows_ = larger_tile(ctx_.options(), rows, batch * column_tiles);
    else if (!makes_copies_of_right())
      tile_rows_ = shared_tile(ctx_.options(), rows, b_.simplify(batch * column_tiles));
    const SymExpr row_tiles = ceildiv(rows, tile_rows_);
    const RowBlocks blocks = row_blocks(row_tiles);
    const SymExpr extent = batch * blocks.count * column_tiles * blocks.tiles;
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    assume_elements(out_, b_.facts());
    SymExpr rest = p;
    const auto next_of = [&](const SymExpr& count) {
      const SymExpr next = b_.simplify(mod(rest, count));
      rest = b_.simplify(floordiv(rest, count));
      return next;
    };
    const SymExpr tile = next_of(blocks.tiles);
    const SymExpr column_tile = next_of(column_tiles);
    row_begin_ = (next_of(blocks.count) * blocks.tiles + tile) * tile_rows_;
    column_begin_ = column_tile * tile_columns_;
    if (blocks.count.is_constant(1) && blocks.tiles.is_constant() && !column_tiles.is_constant(1))
      sharers_ = {tile, blocks.tiles.constant()};
    index_.resize(rank);
    if (!flat_) split_batch(rest);
    if (blocks.may_end_early) b_.begin_if(compare(b_, ScalarOp::Lt, row_begin_, rows));
    rows_ = min(tile_rows_, rows - row_begin_);
    columns_ = min(tile_columns_, columns - column_begin_);
    if (split_) {
      unit_columns_ = tile_columns_;
      tile_columns_ *= parts_;
      columns_ = tile_columns_;
    }
    acc_ = b_.add_local(accumulator_, tile_rows_ * tile_columns_, tile_rows_ * tile_columns_);
    const SymExpr& depth_stride = right_.strides[right_.strides.size() - 2];
    const SymExpr& column_stride = right_.strides.back();
    if (group_ != 1)
      contract_groups(column_tile);
    else if (bits_ != 0)
      contract_bits(column_tile);
    else if (panels_)
      contract_panel(column_tile);
    else if (copies_each_tile(rows))
      contract_copied();
    else if (column_stride.is_constant(1) || column_stride.is_constant(0) ||
             depth_stride.is_constant(1))
      contract_whole();
    else
      contract_packed();
    write();
    if (blocks.may_end_early) b_.end_if();
    const SymExpr products = batch * column_tiles * rows * tile_columns_ * depth_;
    b_.nest().work = group_ == kByteGroup ? products : products * 2;
  }

 private:
  /// Neighbouring elements of the depth that are multiplied at a time.
  static std::int64_t group_of(std::string_view op) {
    if (op == "packed_int8_matmul") return kByteGroup;
    return op == "packed_bf16_matmul" ? kBf16Group : 1;
  }

  /// Whether the contraction turns what it reads of the right operand, for each tile again.
  bool packs_each_tile() const {
    return !panels_ && ctx_.options().target == LowerOptions::Target::Cpu &&
           right_.strides[right_.strides.size() - 2].is_constant(1) &&
           !right_.strides.back().is_constant(1);
  }

  /// Whether parts of the right operand are copied for each tile.
  bool copies_each_tile(const SymExpr& rows) const {
    return !panels_ && is_floating(accumulator_) &&
           pays_to_copy(ctx_.options(),
                        {.element_bytes = bytes_of(1),
                         .depth = depth_,
                         .columns = out_.back(),
                         .depth_stride = right_.strides[right_.strides.size() - 2],
                         .column_stride = right_.strides.back()},
                        rows);
  }

  /// Whether tiles make a copy of the right operand in another form, or matrix registers want rows for all of theirs.
  bool makes_copies_of_right() const {
    const DType right = ctx_.node().input(1).meta().dtype;
    const bool is_plain = right == accumulator_ || group_ == kByteGroup;
    return !is_plain || bits_ != 0 || (group_ != 1 && ctx_.options().amx);
  }

  /// Bytes of an element of operand k.
  std::int64_t bytes_of(std::size_t k) const {
    return static_cast<std::int64_t>(size_of(ctx_.node().input(k).meta().dtype));
  }

  /// Whether few rows are multiplied in f32 by those of a matrix as they lie, which come from far for them alone.
  bool reads_rows_of_right(const SymExpr& rows) const {
    constexpr std::int64_t kFewRows = 3;
    return !panels_ && ctx_.options().target == LowerOptions::Target::Cpu && rows.is_constant() &&
           rows.constant() <= kFewRows && accumulator_ == DType::F32 &&
           right_.strides.back().is_constant(1);
  }

  RowBlocks row_blocks(const SymExpr& row_tiles) {
    if (!panels_)
      return given_row_blocks(ctx_.options(), row_tiles, depth_ * out_.back() * bytes_of(1));
    return row_blocks_of(b_, row_tiles, depth_ * (tile_rows_ * bytes_of(0)),
                         base::product(ctx_.operand_sizes(1)) * bytes_of(1));
  }

  void split_batch(SymExpr linear) {
    for (std::size_t d = out_.size() - 2; d-- > 0;) {
      index_[d] = d == 0 ? linear : b_.simplify(mod(linear, out_[d]));
      linear = b_.simplify(floordiv(linear, out_[d]));
    }
  }

  /// Element offset of the matrix of `operand` that belongs to this batch index; dimensions of size 1 are
  /// broadcast.
  SymExpr matrix_offset(const AffineOperand& operand, std::size_t k) {
    const std::vector<SymExpr> sizes = ctx_.operand_sizes(k);
    const std::size_t missing = out_.size() - sizes.size();
    SymExpr offset = operand.offset;
    if (flat_) return offset;
    for (std::size_t d = 0; d + 2 < sizes.size(); ++d) {
      if (!sizes[d].is_constant(1)) offset += operand.strides[d] * index_[d + missing];
    }
    return offset;
  }

  TileOperand left_tile(const SymExpr& depth_begin) {
    const std::size_t rank = left_.strides.size();
    return {
        left_.buffer,
        matrix_offset(left_, 0) + row_stride_ * row_begin_ + left_.strides[rank - 1] * depth_begin,
        row_stride_, left_.strides[rank - 1]};
  }

  void contract(const SymExpr& depth, TileOperand a, TileOperand b, bool accumulate) {
    b_.contract({acc_, accumulator_, tile_rows_, tile_columns_, rows_, columns_, depth,
                 std::move(a), std::move(b), accumulate});
  }

  TileOperand right_tile() {
    const std::size_t rank = right_.strides.size();
    return {right_.buffer, matrix_offset(right_, 1) + right_.strides[rank - 1] * column_begin_,
            right_.strides[rank - 2], right_.strides[rank - 1]};
  }

  void contract_whole() { contract(depth_, left_tile(0), right_tile(), false); }

  /// Fewer rows read the right operand where it lies.
  void contract_copied() {
    const bool may_be_few = !b_.simplify(rows_).is_constant();
    if (may_be_few) b_.begin_if(compare(b_, ScalarOp::Ge, rows_, kRowsOfACopy));
    clear(rows_ * kTileColumns);
    const std::int64_t most = part_depth(kPanelDepth);
    const Symbol block = b_.begin_for(ceildiv(depth_, most), ForStmt::Kind::Serial);
    const SymExpr begin = SymExpr(block) * most;
    const SymExpr depth = b_.simplify(min(most, depth_ - begin));
    TileOperand part = right_tile();
    part.base += part.row_stride * begin;
    contract(depth, left_tile(begin), copied_part(b_, part, depth, columns_, accumulator_), true);
    b_.end_for();
    if (!may_be_few) return;
    b_.end_if();
    b_.begin_if(compare(b_, ScalarOp::Lt, rows_, kRowsOfACopy));
    contract_whole();
    b_.end_if();
  }

  void contract_panel(const SymExpr& number) {
    const SymExpr base = right_.offset + right_.strides[0] * number;
    const DType dtype = ctx_.node().input(1).meta().dtype;
    const bool narrow = dtype == DType::F16 || dtype == DType::BF16 || is_float8(dtype);
    const std::int64_t most = part_depth(kPanelDepth);
    // One row reads a panel once, and waits less for the sums of one pass.
    const bool is_one_pass = (depth_.is_constant() && depth_.constant() <= most) ||
                             (split_ && b_.simplify(rows_).is_constant(1));
    if (!narrow && is_one_pass) {
      contract(depth_, left_tile(0), panel(base), false);
      return;
    }
    clear(rows_ * tile_columns_);
    const SymExpr blocks = ceildiv(depth_, most);
    const Symbol block = b_.begin_for(blocks, ForStmt::Kind::Serial);
    const SymExpr begin = SymExpr(block) * most;
    const SymExpr depth = b_.simplify(min(most, depth_ - begin));
    TileOperand part = panel(base + begin * right_.strides[1]);
    if (narrow)
      contract_narrow(std::move(part), left_tile(begin), depth);
    else
      contract(depth, left_tile(begin), std::move(part), true);
    b_.end_for();
  }

  /// A part of a panel of 16 or 8 bits: few rows widen it as they go, others share a wide copy, and are copied too, as each of their elements is
  /// read for many columns.
  void contract_narrow(TileOperand part, TileOperand a, const SymExpr& depth) {
    constexpr std::int64_t kFewRows = 2;
    b_.begin_if(compare(b_, ScalarOp::Gt, rows_, kFewRows));
    TileOperand wide = copied_part(b_, part, depth, columns_, accumulator_);
    contract(depth, copied_rows(b_, a, tile_rows_, rows_, depth, accumulator_), std::move(wide),
             true);
    b_.end_if();
    b_.begin_if(compare(b_, ScalarOp::Le, rows_, kFewRows));
    contract(depth, std::move(a), std::move(part), true);
    b_.end_if();
  }

  /// Whether vectors are those of a CPU with 16 of them: a block then has few columns, and each element of a tile's rows is read for
  /// many blocks.
  bool has_few_registers() const {
    return ctx_.options().target == LowerOptions::Target::Cpu && ctx_.options().vector_bytes == 32;
  }

  /// Rows, or groups, of a part of a panel: `usual` of 64 columns, or as many as are half a first-level cache; fewer of wider panels, a
  /// multiple of the steps that are written out.
  std::int64_t part_depth(std::int64_t usual) const {
    constexpr std::int64_t kSteps = 16;
    if (has_few_registers())
      usual = kShortPanelBytes / kTileColumns / static_cast<std::int64_t>(size_of(accumulator_));
    if (tile_columns_ <= kTileColumns) return usual;
    return std::max(kSteps, usual * kTileColumns / tile_columns_ / kSteps * kSteps);
  }

  /// A panel of numbers of a few bits.
  void contract_bits(const SymExpr& number) {
    constexpr std::int64_t kFewRows = 8;
    const auto part = [&](std::size_t k) {
      const AffineOperand& of = beside_[k];
      return Dequantised::Part{of.buffer, of.offset + of.strides[0] * number, of.strides[1],
                               of.strides[2]};
    };
    const std::size_t zero = fixed_ ? 3 : 1;
    TileOperand whole = panel(right_.offset + right_.strides[0] * number);
    whole.dequantised =
        Dequantised{.dtype = DType::F32,
                    .scale = part(0),
                    .zero = beside_.size() > zero ? std::optional(part(zero)) : std::nullopt,
                    .group = ctx_.node().integer("group"),
                    .bits = bits_};
    clear(rows_ * kTileColumns);
    if (fixed_) {
      whole.dequantised->fixed = fixed_rows();
      contract(depth_, left_tile(0), std::move(whole), true);
      return;
    }
    b_.begin_if(compare(b_, ScalarOp::Gt, rows_, kFewRows));
    const SymExpr blocks = ceildiv(depth_, kPanelDepth);
    const Symbol block = b_.begin_for(blocks, ForStmt::Kind::Serial);
    const SymExpr begin = SymExpr(block) * kPanelDepth;
    const SymExpr depth = b_.simplify(min(kPanelDepth, depth_ - begin));
    contract(depth, left_tile(begin), copied_numbers(b_, whole, begin, depth), true);
    b_.end_for();
    b_.end_if();
    b_.begin_if(compare(b_, ScalarOp::Le, rows_, kFewRows));
    contract(depth_, left_tile(0), std::move(whole), true);
    b_.end_if();
  }

  /// The digits of a tile's rows.
  Dequantised::FixedRows fixed_rows() const {
    const AffineOperand& scale = beside_[1];
    const AffineOperand& sums = beside_[2];
    return {.digits = ctx_.node().integer("digits"),
            .block = ctx_.node().integer("block"),
            .digit_stride = digit_stride_,
            .scale = {scale.buffer, scale.offset + row_begin_ * scale.strides[0], scale.strides[0],
                      scale.strides[1]},
            .sums = {sums.buffer, sums.offset + row_begin_ * sums.strides[0], sums.strides[0],
                     sums.strides[2]},
            .sum_stride = sums.strides[1]};
  }

  TileOperand panel(SymExpr base) const {
    return {right_.buffer, std::move(base), right_.strides[1], right_.strides[2]};
  }

  /// Groups of neighbours: part of the depth by part, like the panels of floats.
  void contract_groups(const SymExpr& number) {
    // Panels of a matrix for each one on the left come behind its dimensions.
    const auto batch = std::ssize(right_.strides) - 4;
    for (std::ptrdiff_t d = 0; d < batch; ++d)
      right_.offset +=
          right_.strides[static_cast<std::size_t>(d)] * index_[static_cast<std::size_t>(d)];
    right_.strides.erase(right_.strides.begin(), right_.strides.begin() + batch);
    const SymExpr groups = ceildiv(depth_, group_);
    const SymExpr base = right_.offset + right_.strides[0] * number;
    const bool whole =
        b_.simplify(mod(depth_, group_)).is_constant(0) && left_.strides.back().is_constant(1);
    const std::int64_t most = part_groups(groups, whole);
    const bool is_one_part = groups.is_constant() && groups.constant() <= most;
    if (!is_one_part) clear(rows_ * kTileColumns);
    if (rest_) begin_rest(number);
    const SymExpr blocks = is_one_part ? SymExpr(1) : ceildiv(groups, most);
    const SymExpr block = b_.begin_for(blocks, ForStmt::Kind::Serial);
    const SymExpr begin = is_one_part ? SymExpr(0) : block * most;
    const SymExpr depth = b_.simplify(min(most, groups - begin));
    const SymExpr part = base + begin * right_.strides[1];
    TileOperand b =
        group_panel(b_, right_, ctx_.node().input(1).meta().dtype, part, depth, columns_);
    const SymExpr first = begin * group_;
    TileOperand a = whole ? left_tile(first) : whole_groups(first, depth);
    if (whole) a.column_stride = group_;
    ContractStmt contraction{acc_,  accumulator_, tile_rows_,   kTileColumns, rows_, columns_,
                             depth, std::move(a), std::move(b), !is_one_part, group_};
    if (ctx_.options().amx && blocks.is_constant() && sharers_)
      fetch_next_panel(contraction, base, right_.strides[0],
                       {sharers_->first * blocks + block, sharers_->second * blocks.constant()});
    if (group_ == kByteGroup)
      contract_bytes(b_, ctx_.options(), std::move(contraction), pairs_fit_);
    else
      b_.contract(std::move(contraction));
    b_.end_for();
    if (rest_) add_rest(number);
  }

  /// Groups of a part of the depth. @param whole  whether rows of the left operand are read where they lie
  std::int64_t part_groups(const SymExpr& groups, bool whole) const {
    const bool in_place = whole && right_.strides[3].is_constant(1);
    return ctx_.options().amx && in_place ? matrix_register_part(groups) : part_depth(kGroupDepth);
  }

  /// What was taken from a panel so that its pairs fit: few groups, whose counterparts on the left are brought together.
  struct Rest {
    AffineOperand panels, places, counts;
  };
  void begin_rest(const SymExpr& number) {
    const AffineOperand& counts = rest_->counts;
    const Scalar count = b_.load(counts.buffer, counts.offset + number * counts.strides[0]);
    const Scalar none = b_.constant_int(DType::I32, 0);
    pairs_fit_ = b_.apply(ScalarOp::Ge, {count, none});
    const SymExpr most = ctx_.operand_sizes(3)[1];
    rest_count_ =
        b_.bind(b_.convert(b_.apply(ScalarOp::Max, {count, none}), DType::I64), 0, most, 0);
  }
  void add_rest(const SymExpr& number) {
    const std::int64_t most = ctx_.operand_sizes(3)[1].constant();
    const SymExpr last = ctx_.operand_sizes(1)[1] - 1;
    const std::int64_t pitch = most * group_;
    const NestBufferId copy = b_.add_local(DType::U8, tile_rows_ * pitch, tile_rows_ * pitch);
    const TileOperand from = left_tile(0);
    const AffineOperand& places = rest_->places;
    const Symbol k = b_.begin_for(rest_count_, ForStmt::Kind::Serial);
    const Scalar place = b_.load(
        places.buffer, places.offset + number * places.strides[0] + SymExpr(k) * places.strides[1]);
    const SymExpr first = b_.bind(b_.convert(place, DType::I64), 0, last, 0) * group_;
    const Symbol row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Symbol byte = b_.begin_for(group_, ForStmt::Kind::Vector);
    const SymExpr at =
        from.base + SymExpr(row) * from.row_stride + (first + SymExpr(byte)) * from.column_stride;
    b_.store(copy, SymExpr(row) * pitch + SymExpr(k) * group_ + SymExpr(byte),
             b_.load(from.buffer, at));
    b_.end_for();
    b_.end_for();
    b_.end_for();
    const AffineOperand& panels = rest_->panels;
    ContractStmt contraction{acc_,
                             accumulator_,
                             tile_rows_,
                             kTileColumns,
                             rows_,
                             columns_,
                             rest_count_,
                             {copy, 0, pitch, group_},
                             {panels.buffer, panels.offset + number * panels.strides[0],
                              panels.strides[1], panels.strides[2]},
                             true,
                             group_,
                             true};
    b_.contract(std::move(contraction));
  }

  /// `groups` groups of the left matrix from column `first` on, what lies beyond its last column as zeros.
  TileOperand whole_groups(const SymExpr& first, const SymExpr& groups) {
    const DType dtype = ctx_.node().input(0).meta().dtype;
    const GroupedRows part{dtype, group_, tile_rows_, rows_, groups, first, depth_};
    const TileOperand from = left_tile(first);
    const bool lies_across = from.row_stride.is_constant(1) && !from.column_stride.is_constant(1);
    return lies_across && !ctx_.options().amx ? turned_groups(b_, from, part)
                                              : copied_groups(b_, from, part);
  }

  void contract_packed() {
    const std::size_t rank = right_.strides.size();
    const DType dtype = ctx_.node().input(1).meta().dtype;
    const NestBufferId packed =
        b_.add_local(dtype, kPackDepth * kTileColumns, kPackDepth * kTileColumns);
    clear(tile_rows_ * kTileColumns);
    const SymExpr blocks = ceildiv(depth_, kPackDepth);
    const Symbol block = b_.begin_for(blocks, ForStmt::Kind::Serial);
    const SymExpr begin = SymExpr(block) * kPackDepth;
    const SymExpr depth = min(kPackDepth, depth_ - begin);
    const Symbol column = b_.begin_for(columns_, ForStmt::Kind::Serial);
    const Symbol k = b_.begin_for(depth, ForStmt::Kind::Vector);
    const SymExpr from = matrix_offset(right_, 1) +
                         right_.strides[rank - 2] * (begin + SymExpr(k)) +
                         right_.strides[rank - 1] * (column_begin_ + SymExpr(column));
    b_.store(packed, SymExpr(k) * kTileColumns + SymExpr(column), b_.load(right_.buffer, from));
    b_.end_for();
    b_.end_for();
    contract(depth, left_tile(begin), {packed, 0, kTileColumns, 1}, true);
    b_.end_for();
  }

  void clear(const SymExpr& count) {
    const Symbol k = b_.begin_for(count, ForStmt::Kind::Vector);
    b_.store(acc_, k,
             is_floating(accumulator_) ? b_.constant(accumulator_, 0)
                                       : b_.constant_int(accumulator_, 0));
    b_.end_for();
  }

  void write() {
    const std::size_t rank = out_.size();
    const Symbol row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Symbol column =
        b_.begin_for(split_ ? SymExpr(unit_columns_) : columns_, ForStmt::Kind::Vector);
    std::vector<Scalar> values;
    for (std::int64_t part = 0; part < parts_; ++part) {
      const SymExpr from = SymExpr(row) * tile_columns_ + part * unit_columns_ + SymExpr(column);
      values.push_back(b_.convert(b_.load(acc_, from), ctx_.node().output().dtype));
    }
    const SymExpr at = row_begin_ + SymExpr(row);
    if (flat_) {
      const Index rows = delinearize(at, std::span(out_).first(rank - 1), b_.facts());
      std::copy(rows.begin(), rows.end(), index_.begin());
    } else {
      index_[rank - 2] = at;
    }
    index_[rank - 1] = column_begin_ + SymExpr(column);
    ctx_.results(index_, values);
    b_.end_for();
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  std::vector<SymExpr> out_;
  AffineOperand left_;
  AffineOperand right_;
  std::vector<AffineOperand> beside_;  ///< scales and zero points
  SymExpr depth_;
  std::int64_t group_;
  DType accumulator_;
  bool fixed_;         ///< the left operand is one of digits
  std::int64_t bits_;  ///< of a number of the right operand, which is one of words; 0: it is none
  bool split_;         ///< panels have columns of several right matrices
  bool panels_;        ///< the right operand is a packed one
  bool flat_ = false;  ///< all rows of the batch are rows of one matrix
  SymExpr digit_stride_;  ///< of digits
  SymExpr row_stride_;
  std::int64_t tile_rows_ = kTileRows;
  std::int64_t tile_columns_ = kTileColumns;
  std::int64_t parts_ = 1;         ///< right matrices
  std::int64_t unit_columns_ = 0;  ///< of each, in a panel
  NestBufferId acc_ = 0;
  Mask pairs_fit_;
  std::optional<Rest> rest_;
  SymExpr rest_count_;  ///< groups of it in this panel
  /// Number of a tile among those that follow each other by the same panel, and how many they are; none: not known, or none do.
  std::optional<std::pair<SymExpr, std::int64_t>> sharers_;
  std::vector<SymExpr> index_;
  SymExpr row_begin_, column_begin_, rows_, columns_;
};

void build_matmul(NestContext& ctx) {
  if (is_product(ctx))
    build_product(ctx);
  else
    MatmulNest(ctx).build();
}

}  // namespace

const NestRecipe kDequantisedMatmulRecipe{.name = "dequantised_matmul",
                                          .memory_operands = 0b1111,
                                          .epilogue = true,
                                          .build = build_matmul};
const NestRecipe kInt8MatmulRecipe{
    .name = "int8_matmul", .memory_operands = 0b11, .epilogue = true, .build = build_matmul};
const NestRecipe kMatmulRecipe{
    .name = "matmul", .memory_operands = 0b11, .epilogue = true, .build = build_matmul};
const NestRecipe kPackedBf16MatmulRecipe{
    .name = "packed_bf16_matmul", .memory_operands = 0b11, .epilogue = true, .build = build_matmul};
const NestRecipe kPackedBitsMatmulRecipe{.name = "packed_bits_matmul",
                                         .memory_operands = 0b1111,
                                         .epilogue = true,
                                         .build = build_matmul};
const NestRecipe kFixedBitsMatmulRecipe{.name = "fixed_bits_matmul",
                                        .memory_operands = 0b111111,
                                        .epilogue = true,
                                        .build = build_matmul};
const NestRecipe kPackedInt8MatmulRecipe{.name = "packed_int8_matmul",
                                         .memory_operands = 0b111011,
                                         .epilogue = true,
                                         .build = build_matmul};
const NestRecipe kPackedMatmulRecipe{
    .name = "packed_matmul", .memory_operands = 0b11, .epilogue = true, .build = build_matmul};
const NestRecipe kPackedSplitMatmulRecipe{.name = "packed_split_matmul",
                                          .memory_operands = 0b11,
                                          .epilogue = true,
                                          .of_all_results = true,
                                          .build = build_matmul};

}  // namespace heddle::jit
