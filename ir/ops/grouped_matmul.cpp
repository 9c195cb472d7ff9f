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
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer(const InferContext& ctx) {
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

std::vector<Literal> evaluate(const EvalContext& ctx) {
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
std::vector<Value> decompose(DecomposeContext& ctx) {
  const DType dtype = ctx.node.output().dtype;
  const Value x = emit_convert(ctx, ctx.inputs[0], dtype);
  const Value w = emit_convert(ctx, ctx.inputs[1], dtype);
  const Value ends = emit_convert(ctx, ctx.inputs[2], DType::I64);
  if (x == ctx.inputs[0] && w == ctx.inputs[1] && ends == ctx.inputs[2]) return {};
  return {ctx.emit("grouped_matmul", {x, w, ends}, ctx.node.attrs())};
}

}  // namespace

OpDef grouped_matmul_op() {
  return {
      .name = "grouped_matmul",
      .operands = {{"x"}, {"w"}, {"ends"}},
      .attrs = {{"tf32", AttrKind::Bool, false}},
      .infer = infer,
      .evaluate = evaluate,
      .lowering = {.decompose = decompose, .nest = "grouped_matmul"},
  };
}

}  // namespace heddle::ir::ops
