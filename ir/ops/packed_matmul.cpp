// packed_matmul: a matrix product whose right operand lies in panels of columns, as kernels read it.
//
//   a         T[..., m, k]
//   panels    U[p, k, w]: column j of the right matrix is column j % w of panel j / w; U is T, or f16, bf16 or an
//             8-bit float where T is f32
//   columns   n, the columns of the right matrix; what lies beyond them in the last panel is not read
//   result    T[..., m, n]
//
// Sums are those of matmul with the panels converted to T. The lowering makes such calls from matmul with constant
// weights; panels are packed once, when the program is built.
//
// Constraints. infer() checks them in this order; tests are named packed_matmul_c1 ...
//   C1  a and panels are numbers of one dtype, but for panels of f16, bf16 and 8-bit floats with f32
//   C2  a has at least two dimensions, panels have three
//   C3  the inner sizes k agree
//   C4  p panels of w columns hold n columns, and p - 1 do not
//
// Memory: the result is fresh.
// Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, section 4.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_packed_matmul(const InferContext& ctx) {
  const TensorMeta& a = ctx.meta(0);
  const TensorMeta& panels = ctx.meta(1);
  constexpr std::string_view kC1 =
      "C1 a and panels are numbers of one dtype, but for panels of f16, bf16 and 8-bit floats with "
      "f32";
  require_number(ctx, 0, kC1);
  const bool narrow =
      a.dtype == DType::F32 &&
      (panels.dtype == DType::F16 || panels.dtype == DType::BF16 || is_float8(panels.dtype));
  if (panels.dtype != a.dtype && !narrow)
    ctx.fail_dtype(kC1, std::string(name_of(a.dtype)), std::string(name_of(panels.dtype)));
  if (a.rank() < 2 || panels.rank() != 3) {
    ctx.fail_shape("C2 a has at least two dimensions, panels have three",
                   "sizes [..., m, k] and [p, k, w]",
                   text_of(a.sizes) + " and " + text_of(panels.sizes));
  }
  ctx.require_equal(a.sizes.back(), panels.sizes[1], "C3 the inner sizes agree");
  const SymExpr columns = ctx.integer("columns");
  constexpr std::string_view kC4 = "C4 p panels of w columns hold n columns, and p - 1 do not";
  require_le(ctx, 1, panels.sizes[2], kC4, "at least 1 column a panel",
             panels.sizes[2].to_string());
  ctx.require_equal(ceildiv(columns, panels.sizes[2]), panels.sizes[0], kC4);
  Dims sizes(a.sizes.begin(), a.sizes.end() - 1);
  sizes.push_back(columns);
  return one(fresh(ctx, a.dtype, std::move(sizes)));
}

/// The right matrix, row-major.
template <typename T>
std::vector<T> from_panels(const Literal& panels, std::int64_t columns) {
  const std::vector<T> packed = dense<T>(panels);
  const std::int64_t depth = panels.sizes()[1];
  const std::int64_t width = panels.sizes()[2];
  std::vector<T> matrix;
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < columns; ++j)
      matrix.push_back(
          packed[static_cast<std::size_t>((j / width * depth + k) * width + j % width)]);
  return matrix;
}

std::vector<Literal> evaluate_packed_matmul(const EvalContext& ctx) {
  const Literal& panels = ctx.inputs[1];
  const std::int64_t columns = ctx.node.integer("columns");
  const Sizes sizes = {panels.sizes()[1], columns};
  const Literal matrix = with_number(panels.dtype(), [&]<typename T>() {
    return literal_of(panels.dtype(), sizes, from_panels<T>(panels, columns));
  });
  return {
      matrix_product(ctx.inputs[0], converted(matrix, ctx.inputs[0].dtype()), ctx.output_sizes())};
}

}  // namespace

OpDef packed_matmul_op() {
  return {
      .name = "packed_matmul",
      .takes_float8 = true,
      .operands = {{"a"}, {"panels"}},
      .attrs = {{"columns", AttrKind::Int, {}}},
      .infer = infer_packed_matmul,
      .evaluate = evaluate_packed_matmul,
      .lowering = {.nest = "packed_matmul"},
      .apart = {{1, {1}}},
  };
}

}  // namespace heddle::ir::ops
