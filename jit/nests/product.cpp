#include "jit/nests/product.h"

#include <algorithm>

#include "jit/lower/index.h"
#include "jit/nests/support.h"

namespace heddle::jit {

namespace {

constexpr std::int64_t kDeviceTileRows = 32;
constexpr std::int64_t kDeviceTileColumns = 64;

class ProductNest {
 public:
  explicit ProductNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        out_(ctx.output_sizes()),
        left_(*ctx.affine(0)),
        right_(*ctx.affine(1)),
        row_stride_(left_.strides[left_.strides.size() - 2]),
        batch_dims_(out_.size() - 2) {
    // Buffers of others come before those of the kernel's own.
    const std::size_t operands = ctx.node().inputs().size();
    for (std::size_t k = 2; k < operands && ctx.node().input(k); ++k)
      beside_.push_back(*ctx.affine(k));
    if (right_.strides.size() != 2 && !in_words()) return;
    if (const auto even = even_row_stride(b_, left_, out_)) {
      row_stride_ = *even;
      batch_dims_ = 0;
    }
  }

  void build() {
    const std::size_t rank = out_.size();
    ProductForm form;
    form.rows = base::product(std::span(out_).subspan(batch_dims_, rank - 1 - batch_dims_));
    form.columns = out_[rank - 1];
    form.batches = base::product(std::span(out_).first(batch_dims_));
    split_into_tiles(b_, out_, kDeviceTileRows, kDeviceTileColumns, form);
    row_begin_ = form.row_begin;
    column_begin_ = form.column_begin;
    index_ = delinearize(form.batch, std::span(out_).first(batch_dims_), b_.facts());
    index_.resize(rank);
    contract(form);
    write();
    b_.nest().work = form.batches * form.rows * form.columns * depth() * 2;
    b_.nest().product = std::move(form);
  }

 private:
  bool in_words() const { return ctx_.node().op_name() == "packed_bits_matmul"; }
  SymExpr depth() { return ctx_.operand_sizes(0).back(); }

  /// Where the matrix of operand `k` begins that belongs to this batch index; dimensions of size 1 are broadcast.
  SymExpr matrix_offset(const AffineOperand& operand, std::size_t k) {
    const std::vector<SymExpr> sizes = ctx_.operand_sizes(k);
    const std::size_t missing = out_.size() - sizes.size();
    SymExpr offset = operand.offset;
    for (std::size_t d = 0; d + 2 < sizes.size() && batch_dims_ != 0; ++d)
      if (!sizes[d].is_constant(1)) offset += operand.strides[d] * index_[d + missing];
    return offset;
  }

  void contract(const ProductForm& form) {
    rows_ = min(kDeviceTileRows, form.rows - row_begin_);
    columns_ = min(kDeviceTileColumns, form.columns - column_begin_);
    const DType result = ctx_.node().output().dtype;
    const DType dtype = is_floating(result) ? accumulator_of(result) : result;  // bytes: sums wrap
    acc_ = b_.add_local(dtype, kDeviceTileRows * kDeviceTileColumns,
                        kDeviceTileRows * kDeviceTileColumns);
    const SymExpr& right_row = right_.strides[right_.strides.size() - 2];
    b_.contract({.acc = acc_,
                 .dtype = dtype,
                 .tile_rows = kDeviceTileRows,
                 .tile_columns = kDeviceTileColumns,
                 .rows = rows_,
                 .columns = columns_,
                 .depth = depth(),
                 .a = {left_.buffer, matrix_offset(left_, 0) + row_stride_ * row_begin_,
                       row_stride_, left_.strides.back()},
                 .b = {right_.buffer,
                       matrix_offset(right_, 1) + right_.strides.back() * column_begin_,
                       right_row,
                       right_.strides.back(),
                       {},
                       dequantised()},
                 .tf32 = ctx_.node().op_name() != "int8_matmul" && ctx_.node().flag("tf32")});
  }

  /// What the bytes of dequantised_matmul, or the numbers of packed_bits_matmul's one panel, stand for.
  base::Boxed<Dequantised> dequantised() {
    if (ctx_.node().op_name() != "dequantised_matmul" && !in_words()) return std::nullopt;
    Dequantised made{.dtype = ctx_.node().output().dtype,
                     .scale = part(2),
                     .group = ctx_.node().integer("group"),
                     .bits = in_words() ? ctx_.node().integer("bits") : 0};
    if (beside_.size() > 1) made.zero = part(3);
    return made;
  }

  /// Operand `k` beside the tile's columns; dimensions of size 1 are the same for all.
  Dequantised::Part part(std::size_t k) {
    const AffineOperand& given = beside_[k - 2];
    const std::vector<SymExpr> sizes = ctx_.operand_sizes(k);
    const std::size_t column = sizes.size() - 1;
    const auto stride = [&](std::size_t d) {
      return sizes[d].is_constant(1) ? SymExpr(0) : given.strides[d];
    };
    const bool is_row = ctx_.node().integer("group") == 0;
    return {given.buffer, matrix_offset(given, k) + stride(column) * column_begin_,
            is_row ? SymExpr(0) : stride(column - 1), stride(column)};
  }

  void write() {
    const std::size_t rank = out_.size();
    const Symbol row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Symbol column = b_.begin_for(columns_, ForStmt::Kind::Vector);
    const Scalar sum = b_.load(acc_, SymExpr(row) * kDeviceTileColumns + SymExpr(column));
    const SymExpr at = row_begin_ + SymExpr(row);
    const Index rows =
        delinearize(at, std::span(out_).subspan(batch_dims_, rank - 1 - batch_dims_), b_.facts());
    std::copy(rows.begin(), rows.end(), index_.begin() + static_cast<std::ptrdiff_t>(batch_dims_));
    index_[rank - 1] = column_begin_ + SymExpr(column);
    ctx_.result(0, index_, b_.convert(sum, ctx_.node().output().dtype));
    b_.end_for();
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  std::vector<SymExpr> out_;
  AffineOperand left_;
  AffineOperand right_;
  std::vector<AffineOperand> beside_;  ///< scales and zero points
  SymExpr row_stride_;                 ///< of the left matrix
  std::size_t batch_dims_;             ///< 0: all rows of the batch are rows of one matrix
  NestBufferId acc_ = 0;
  Index index_;
  SymExpr row_begin_, column_begin_, rows_, columns_;
};

}  // namespace

bool is_product(const NestContext& ctx) {
  if (ctx.options().target != LowerOptions::Target::Cuda) return false;
  const DType dtype = ctx.node().output().dtype;
  const bool floats = dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32;
  const std::string_view name = ctx.node().op_name();
  if (name == "packed_bits_matmul")
    return ctx.node().input(1).meta().sizes[0].is_constant(1) && ctx.node().integer("bits") <= 4;
  return name == "int8_matmul" || (floats && (name == "matmul" || name == "dequantised_matmul"));
}

void build_product(NestContext& ctx) { ProductNest(ctx).build(); }

}  // namespace heddle::jit
