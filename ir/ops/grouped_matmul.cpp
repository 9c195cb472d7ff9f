// grouped_matmul: rows in groups that lie behind each other, each group times a matrix of its own.
//
//   x         T[n, k]
//   w         U[groups, k, m]
//   ends      i64[groups] or i32[groups]: where each group ends
//   result    promote(T, U)[n, m]
//
// Row r belongs to the first group g with ends[g] > r; a row that belongs to none gives zeros. Any ends are fine: a group
// that ends no later than one before it has no rows. Operands are converted to the result's dtype before they are
// multiplied, and products are summed as those of matmul. What experts of a mixture do to the rows that picked them.
//
// With tf32 = true operands of f32 may be rounded as those of matmul.
//
// Constraints. infer() checks them in this order; tests are named grouped_matmul_c1 ...
//   C1  x and w are numbers
//   C2  x has two dimensions, w three
//   C3  ends is i32 or i64 with one dimension
//   C4  the inner sizes k agree
//   C5  there is an end for each matrix
//   C6  tf32 is for a result of f32
//
// Memory: the result is fresh.
// Lowering: nest "grouped_matmul" takes operands of the result's dtype and ends of i64; decompose brings every other
// call into that form.
// Source: PyTorch, "torch._grouped_mm", whose rows beyond the last group are left open.
//
// packed_grouped_matmul: the same of matrices that lie in panels of columns, as those of packed_matmul.
//
//   panels    T[groups, p, k, width] in place of w: column j of a matrix is column j % width of its panel j / width
//   columns   m; what lies beyond them in the last panel is not read
//
//   C1  x and panels are numbers of one dtype
//   C2  x has two dimensions, panels four
//   C3  ends is i64 with one dimension
//   C4  the inner sizes k agree
//   C5  there is an end for each matrix
//   C6  p panels of `width` columns hold m columns, and p - 1 do not
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_grouped_matmul(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const TensorMeta& w = ctx.meta(1);
  const TensorMeta& ends = ctx.meta(2);
  require_number(ctx, 0, "C1 x and w are numbers");
  require_number(ctx, 1, "C1 x and w are numbers");
  if (x.rank() != 2 || w.rank() != 3) {
    ctx.fail_shape("C2 x has two dimensions, w three", "sizes [n, k] and [groups, k, m]",
                   text_of(seen(ctx.env, x.sizes)) + " and " + text_of(seen(ctx.env, w.sizes)));
  }
  if (ends.dtype != DType::I32 && ends.dtype != DType::I64)
    ctx.fail_dtype("C3 ends is i32 or i64 with one dimension", "i32 or i64",
                   std::string(name_of(ends.dtype)));
  if (ends.rank() != 1)
    ctx.fail_shape("C3 ends is i32 or i64 with one dimension", "[groups]",
                   text_of(seen(ctx.env, ends.sizes)));
  ctx.require_equal(x.sizes[1], w.sizes[1], "C4 the inner sizes agree");
  ctx.require_equal(w.sizes[0], ends.sizes[0], "C5 there is an end for each matrix");
  const DType dtype = promote(x.dtype, w.dtype);
  if (ctx.flag("tf32") && dtype != DType::F32)
    ctx.fail_dtype("C6 tf32 is for a result of f32", "f32", std::string(name_of(dtype)));
  return one(fresh(ctx, dtype, {x.sizes[0], w.sizes[2]}));
}

template <typename T>
std::vector<T> products(const std::vector<T>& x, const std::vector<T>& w, const Literal& ends,
                        const Sizes& of_x, const Sizes& of_w) {
  const std::int64_t depth = of_w[1];
  const std::int64_t columns = of_w[2];
  std::vector<T> result(static_cast<std::size_t>(of_x[0] * columns));
  for (std::int64_t r = 0; r < of_x[0]; ++r) {
    std::int64_t group = 0;
    while (group < of_w[0] && ends.at_int(group) <= r) ++group;
    for (std::int64_t q = 0; group < of_w[0] && q < depth; ++q) {
      const T left = x[static_cast<std::size_t>(r * depth + q)];
      const T* right = w.data() + (group * depth + q) * columns;
      T* sum = result.data() + r * columns;
      for (std::int64_t j = 0; j < columns; ++j) sum[j] = plus(sum[j], times(left, right[j]));
    }
  }
  return result;
}

std::vector<Literal> evaluate_grouped_matmul(const EvalContext& ctx) {
  const DType dtype = ctx.node.output().dtype;
  const Literal x = converted(ctx.inputs[0], dtype);
  const Literal w = converted(ctx.inputs[1], dtype);
  const Literal ends = converted(ctx.inputs[2], DType::I64).contiguous();
  return {with_number(dtype, [&]<typename T>() {
    return literal_of(dtype, ctx.output_sizes(),
                      products(dense<T>(x), dense<T>(w), ends, x.sizes(), w.sizes()));
  })};
}

/// Converts operands to the result's dtype, and ends to i64.
std::vector<Value> decompose_grouped_matmul(DecomposeContext& ctx) {
  const DType dtype = ctx.node.output().dtype;
  const Value x = emit_convert(ctx, ctx.inputs[0], dtype);
  const Value w = emit_convert(ctx, ctx.inputs[1], dtype);
  const Value ends = emit_convert(ctx, ctx.inputs[2], DType::I64);
  if (x == ctx.inputs[0] && w == ctx.inputs[1] && ends == ctx.inputs[2]) return {};
  return {ctx.emit("grouped_matmul", {x, w, ends}, ctx.node.attrs())};
}

std::vector<TensorMeta> infer_packed(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const TensorMeta& panels = ctx.meta(1);
  const TensorMeta& ends = ctx.meta(2);
  constexpr std::string_view kC1 = "C1 x and panels are numbers of one dtype";
  require_number(ctx, 0, kC1);
  if (panels.dtype != x.dtype)
    ctx.fail_dtype(kC1, std::string(name_of(x.dtype)), std::string(name_of(panels.dtype)));
  if (x.rank() != 2 || panels.rank() != 4)
    ctx.fail_shape("C2 x has two dimensions, panels four", "sizes [n, k] and [groups, p, k, width]",
                   text_of(x.sizes) + " and " + text_of(panels.sizes));
  constexpr std::string_view kC3 = "C3 ends is i64 with one dimension";
  if (ends.dtype != DType::I64) ctx.fail_dtype(kC3, "i64", std::string(name_of(ends.dtype)));
  if (ends.rank() != 1) ctx.fail_shape(kC3, "[groups]", text_of(ends.sizes));
  ctx.require_equal(x.sizes[1], panels.sizes[2], "C4 the inner sizes agree");
  ctx.require_equal(panels.sizes[0], ends.sizes[0], "C5 there is an end for each matrix");
  constexpr std::string_view kC6 = "C6 p panels of width columns hold m columns, and p - 1 do not";
  const SymExpr columns = ctx.integer("columns");
  require_le(ctx, 1, panels.sizes[3], kC6, "at least 1 column a panel",
             panels.sizes[3].to_string());
  ctx.require_equal(ceildiv(columns, panels.sizes[3]), panels.sizes[1], kC6);
  return one(fresh(ctx, x.dtype, {x.sizes[0], columns}));
}

/// The matrices that panels hold, [groups, k, columns] row-major.
template <typename T>
std::vector<T> columns_of_panels(const Literal& panels, std::int64_t columns) {
  const std::vector<T> packed = dense<T>(panels);
  const Sizes& sizes = panels.sizes();
  const std::int64_t width = sizes[3];
  std::vector<T> matrices;
  for (std::int64_t g = 0; g < sizes[0]; ++g)
    for (std::int64_t k = 0; k < sizes[2]; ++k)
      for (std::int64_t j = 0; j < columns; ++j)
        matrices.push_back(packed[static_cast<std::size_t>(
            ((g * sizes[1] + j / width) * sizes[2] + k) * width + j % width)]);
  return matrices;
}

std::vector<Literal> evaluate_packed(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Literal& panels = ctx.inputs[1];
  const std::int64_t columns = ctx.node.integer("columns");
  const Sizes of_w = {panels.sizes()[0], panels.sizes()[2], columns};
  return {with_number(x.dtype(), [&]<typename T>() {
    return literal_of(x.dtype(), ctx.output_sizes(),
                      products(dense<T>(x), columns_of_panels<T>(panels, columns),
                               ctx.inputs[2].contiguous(), x.sizes(), of_w));
  })};
}

}  // namespace

OpDef grouped_matmul_op() {
  return {
      .name = "grouped_matmul",
      .operands = {{"x"}, {"w"}, {"ends"}},
      .attrs = {{"tf32", AttrKind::Bool, false}},
      .infer = infer_grouped_matmul,
      .evaluate = evaluate_grouped_matmul,
      .lowering = {.decompose = decompose_grouped_matmul, .nest = "grouped_matmul"},
  };
}

OpDef packed_grouped_matmul_op() {
  return {
      .name = "packed_grouped_matmul",
      .operands = {{"x"}, {"panels"}, {"ends"}},
      .attrs = {{"columns", AttrKind::Int, {}}},
      .infer = infer_packed,
      .evaluate = evaluate_packed,
      .lowering = {.nest = "packed_grouped_matmul"},
  };
}

}  // namespace heddle::ir::ops
