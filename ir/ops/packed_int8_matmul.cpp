// packed_int8_matmul: an exact product of bytes, its right operand in panels of columns, four elements of the depth side by side.
//
//   a         u8[..., m, k]
//   panels    i8[p, q, w, 4]: element (row, column) of the right matrix is element (column / w, row / 4, column % w,
//             row % 4); rows from k on are not read as anything but 0
//   columns   n, the columns of the right matrix; what lies beyond them in the last panel is not read
//   result    i32[..., m, n]
//
// Sums wrap modulo 2^32. The lowering makes such calls from products of bytes converted to i32 with constant weights.
//
// Constraints. infer() checks them in this order; tests are named packed_int8_matmul_c1 ...
//   C1  a is u8 and panels are i8
//   C2  a has at least two dimensions, panels have four
//   C3  the last dimension of panels is 4
//   C4  q groups of 4 hold k rows, and q - 1 do not
//   C5  p panels of w columns hold n columns, and p - 1 do not
//
// Memory: the result is fresh.
// Source: Intel, "Architecture Instruction Set Extensions": VPDPBUSD multiplies four bytes without a sign by four with one.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kGroup = 4;

std::vector<TensorMeta> infer(const InferContext& ctx) {
  const TensorMeta& a = ctx.meta(0);
  const TensorMeta& panels = ctx.meta(1);
  constexpr std::string_view kC1 = "C1 a is u8 and panels are i8";
  if (a.dtype != DType::U8) ctx.fail_dtype(kC1, "u8", std::string(name_of(a.dtype)));
  if (panels.dtype != DType::I8) ctx.fail_dtype(kC1, "i8", std::string(name_of(panels.dtype)));
  if (a.rank() < 2 || panels.rank() != 4) {
    ctx.fail_shape("C2 a has at least two dimensions, panels have four",
                   "sizes [..., m, k] and [p, q, w, 4]",
                   text_of(a.sizes) + " and " + text_of(panels.sizes));
  }
  ctx.require_equal(kGroup, panels.sizes[3], "C3 the last dimension of panels is 4");
  ctx.require_equal(ceildiv(a.sizes.back(), kGroup), panels.sizes[1],
                    "C4 q groups of 4 hold k rows, and q - 1 do not");
  const SymExpr columns = ctx.integer("columns");
  constexpr std::string_view kC5 = "C5 p panels of w columns hold n columns, and p - 1 do not";
  require_le(ctx, 1, panels.sizes[2], kC5, "at least 1 column a panel",
             panels.sizes[2].to_string());
  ctx.require_equal(ceildiv(columns, panels.sizes[2]), panels.sizes[0], kC5);
  Dims sizes(a.sizes.begin(), a.sizes.end() - 1);
  sizes.push_back(columns);
  return one(fresh(ctx, DType::I32, std::move(sizes)));
}

std::vector<Literal> evaluate(const EvalContext& ctx) {
  const Literal a = converted(ctx.inputs[0], DType::I32);
  const std::int64_t columns = ctx.node.integer("columns");
  const Literal matrix = matrix_of_panels(ctx.inputs[1], a.sizes().back(), columns);
  return {matrix_product(a, matrix, ctx.output_sizes())};
}

}  // namespace

Literal matrix_of_panels(const Literal& panels, std::int64_t depth, std::int64_t columns) {
  const std::vector<std::int64_t> packed = dense<std::int64_t>(panels);
  const std::int64_t groups = panels.sizes()[1];
  const std::int64_t width = panels.sizes()[2];
  std::vector<std::int64_t> matrix;
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t group = j / width * groups + k / kGroup;
      const std::int64_t place = (group * width + j % width) * kGroup + k % kGroup;
      matrix.push_back(packed[static_cast<std::size_t>(place)]);
    }
  return literal_of(DType::I32, {depth, columns}, matrix);
}

OpDef packed_int8_matmul_op() {
  return {
      .name = "packed_int8_matmul",
      .operands = {{"a"}, {"panels"}},
      .attrs = {{"columns", AttrKind::Int, {}}},
      .infer = infer,
      .evaluate = evaluate,
      .lowering = {.nest = "packed_int8_matmul"},
  };
}

}  // namespace heddle::ir::ops
