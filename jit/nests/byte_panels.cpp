// byte_panels as a nest: panels are independent.
//
//   for p in matrices x panels (parallel)
//     where the depth lies side by side:
//       for column in panel (serial): for g in groups (serial): four bytes at once
//     else:
//       for g in groups (serial): for column in panel (vector): the bytes of four rows, one after the other
//     columns that fill the last panel: 0
#include <algorithm>

#include "jit/lower/index.h"
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

class BytePanelsNest {
 public:
  explicit BytePanelsNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        x_(*ctx.affine(0)),
        sizes_(ctx.operand_sizes(0)),
        panels_(ctx.output_sizes()),
        out_(ctx.output_memory(0)),
        rank_(sizes_.size()),
        width_(ctx.node().integer("width")),
        groups_(panels_[rank_ - 1]) {}

  void build() {
    const std::vector<SymExpr> outer(panels_.begin(), panels_.end() - 3);
    const SymExpr extent = base::product(outer);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    const Index index = delinearize(p, outer, b_.facts());
    from_ = x_.offset;
    for (std::size_t d = 0; d + 2 < rank_; ++d) from_ += x_.strides[d] * index[d];
    const SymExpr first = index.back() * width_;
    from_ += x_.strides[rank_ - 1] * first;
    to_ = SymExpr(p) * groups_ * (width_ * kByteGroup);
    columns_ = b_.simplify(min(width_, sizes_[rank_ - 1] - first));
    if (x_.strides[rank_ - 2].is_constant(1) && !x_.strides[rank_ - 1].is_constant(1))
      copy_columns();
    else
      copy_rows();
    fill_columns();
    b_.nest().work = base::product(sizes_);
  }

 private:
  const SymExpr& depth() const { return sizes_[rank_ - 2]; }
  SymExpr place(const SymExpr& group, const SymExpr& column, const SymExpr& byte) const {
    return to_ + (group * width_ + column) * kByteGroup + byte;
  }

  void store(const SymExpr& at, const SymExpr& from, const Mask& mask) {
    Scalar byte = b_.load(x_.buffer, from, id_of(mask));
    if (byte.dtype == DType::U8) {
      byte = b_.apply(ScalarOp::Add, {byte, b_.constant_int(DType::U8, 128)});
      byte = b_.convert(byte, DType::I8);
    }
    b_.store(out_, at, select(b_, mask, byte, b_.constant_int(DType::I8, 0)));
  }

  void copy_columns() {
    const SymExpr column = b_.begin_for(columns_, ForStmt::Kind::Serial);
    const SymExpr from = from_ + column * x_.strides[rank_ - 1];
    const SymExpr whole = b_.simplify(floordiv(depth(), kByteGroup));
    const SymExpr group = b_.begin_for(whole, ForStmt::Kind::Serial);
    const SymExpr byte = b_.begin_for(kByteGroup, ForStmt::Kind::Vector);
    store(place(group, column, byte), from + group * kByteGroup + byte, {});
    b_.end_for();
    b_.end_for();
    const SymExpr rest = b_.simplify(groups_ - whole);
    if (!rest.is_constant(0)) {
      const SymExpr last = whole + b_.begin_for(rest, ForStmt::Kind::Serial);
      const SymExpr each = b_.begin_for(kByteGroup, ForStmt::Kind::Vector);
      const SymExpr row = last * kByteGroup + each;
      store(place(last, column, each), from + row, where_less(b_, {}, row, depth()));
      b_.end_for();
      b_.end_for();
    }
    b_.end_for();
  }

  void copy_rows() {
    const SymExpr whole = b_.simplify(floordiv(depth(), kByteGroup));
    copy_groups(0, whole, false);
    const SymExpr rest = b_.simplify(groups_ - whole);
    if (!rest.is_constant(0)) copy_groups(whole, rest, true);
  }
  void copy_groups(const SymExpr& begin, const SymExpr& count, bool is_part) {
    const SymExpr group = begin + b_.begin_for(count, ForStmt::Kind::Serial);
    Mask inside[kByteGroup];
    for (std::int64_t byte = 0; byte < kByteGroup; ++byte)
      if (is_part) inside[byte] = where_less(b_, {}, group * kByteGroup + byte, depth());
    const SymExpr column = b_.begin_for(columns_, ForStmt::Kind::Vector);
    for (std::int64_t byte = 0; byte < kByteGroup; ++byte)
      store(place(group, column, byte),
            from_ + (group * kByteGroup + byte) * x_.strides[rank_ - 2] +
                column * x_.strides[rank_ - 1],
            inside[byte]);
    b_.end_for();
    b_.end_for();
  }

  void fill_columns() {
    const SymExpr missing = b_.simplify(width_ - columns_);
    if (missing.is_constant(0)) return;
    const SymExpr group = b_.begin_for(groups_, ForStmt::Kind::Serial);
    const SymExpr byte = b_.begin_for(missing * kByteGroup, ForStmt::Kind::Vector);
    b_.store(out_, place(group, columns_, byte), b_.constant_int(DType::I8, 0));
    b_.end_for();
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const AffineOperand x_;
  const std::vector<SymExpr> sizes_, panels_;
  const NestBufferId out_;
  const std::size_t rank_;
  const std::int64_t width_;
  const SymExpr groups_;
  SymExpr from_, to_, columns_;  ///< of the iteration's panel
};

}  // namespace

const NestRecipe kBytePanelsRecipe{.name = "byte_panels",
                                   .memory_operands = 0b1,
                                   .build = [](NestContext& ctx) { BytePanelsNest(ctx).build(); }};

}  // namespace heddle::jit
