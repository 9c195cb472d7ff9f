// cumsum as a nest: a running sum carried along the axis, many columns side by side where the axis is not
// the last one.
//
//   for p in outer x blocks of inner (parallel)
//     for column of the block (vector; absent where inner is 1)
//       for k along the axis (serial): carry the sum, result(p, k, column)
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

constexpr std::int64_t kBlock = 64;

class ScanNest {
 public:
  explicit ScanNest(NestContext& ctx) : ctx_(ctx), b_(ctx.builder()), sizes_(ctx.output_sizes()) {
    const std::int64_t axis = ctx.node().integer("axis");
    const auto rank = static_cast<std::int64_t>(sizes_.size());
    axis_ = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  }

  void build() {
    const std::span<const SymExpr> sizes(sizes_);
    const auto outer = sizes.first(axis_);
    const auto inner = sizes.subspan(axis_ + 1);
    const SymExpr columns = base::product(inner);
    const SymExpr blocks = ceildiv(columns, kBlock);
    const SymExpr extent = base::product(outer) * blocks;
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    const SymExpr row = b_.simplify(floordiv(p, blocks));
    const SymExpr begin = b_.simplify(mod(p, blocks)) * kBlock;
    outer_ = delinearize(row, outer, b_.facts());
    if (columns.is_constant(1)) {
      inner_.assign(inner.size(), SymExpr(0));
      scan();
      return;
    }
    const SymExpr count = min(kBlock, columns - begin);
    const Symbol column = b_.begin_for(count, ForStmt::Kind::Vector);
    inner_ = delinearize(begin + SymExpr(column), inner, b_.facts());
    scan();
    b_.end_for();
  }

 private:
  void scan() {
    const DType dtype = ctx_.node().output().dtype;
    const DType accumulator = accumulator_of(dtype);
    const SymExpr length = sizes_[axis_];
    const Scalar start = zero(b_, accumulator);
    const Symbol k = b_.begin_for(length, ForStmt::Kind::Serial);
    const Scalar before = b_.carry(start);
    Index index = outer_;
    index.push_back(ctx_.node().flag("reverse") ? length - 1 - SymExpr(k) : SymExpr(k));
    index.insert(index.end(), inner_.begin(), inner_.end());
    const Scalar value = b_.convert(ctx_.operand(0, index), accumulator);
    const Scalar sum = b_.apply(ScalarOp::Add, {before, value});
    ctx_.result(0, index, b_.convert(ctx_.node().flag("exclusive") ? before : sum, dtype));
    b_.set_next(before, sum);
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> sizes_;
  std::size_t axis_ = 0;
  Index outer_, inner_;
};

void build(NestContext& ctx) { ScanNest(ctx).build(); }

}  // namespace

const NestRecipe kScanRecipe{.name = "scan", .epilogue = true, .build = build};

}  // namespace heddle::jit
