// packed_split_matmul: products of one matrix by several of equal sizes whose panels lie side by side.
//
//   a         T[..., m, k], f32 or f64
//   panels    T[p, k, parts * w]: column j of right matrix r is column r * w + j % w of panel j / w
//   parts     the right matrices
//   width     w
//   results   `parts` of T[..., m, p * w]
//
// Result r is the product of a and right matrix r. The lowering makes such calls from products that are read in equal parts
// (split_products.h), so that what combines elements of all parts is done with the product.
//
// Constraints. infer() checks them in this order; tests are named packed_split_matmul_c1 ...
//   C1  a and panels are both f32 or both f64
//   C2  a has at least two dimensions, panels have three
//   C3  the inner sizes k agree
//   C4  parts and width are at least 1, and parts * width is at most 128
//   C5  panels have parts * width columns
//
// Memory: the results are fresh.
// Source: as packed_matmul.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kMostPanelColumns = 128;

std::vector<TensorMeta> infer_packed_split_matmul(const InferContext& ctx) {
  const TensorMeta& a = ctx.meta(0);
  const TensorMeta& panels = ctx.meta(1);
  constexpr std::string_view kC1 = "C1 a and panels are both f32 or both f64";
  if (a.dtype != DType::F32 && a.dtype != DType::F64)
    ctx.fail_dtype(kC1, "f32 or f64", text_of(a.dtype));
  if (panels.dtype != a.dtype) ctx.fail_dtype(kC1, text_of(a.dtype), text_of(panels.dtype));
  if (a.rank() < 2 || panels.rank() != 3)
    ctx.fail_shape("C2 a has at least two dimensions, panels have three",
                   "sizes [..., m, k] and [p, k, w]",
                   text_of(a.sizes) + " and " + text_of(panels.sizes));
  ctx.require_equal(a.sizes.back(), panels.sizes[1], "C3 the inner sizes agree");
  const std::int64_t parts = ctx.integer("parts");
  const std::int64_t width = ctx.integer("width");
  if (parts < 1 || width < 1 || parts > kMostPanelColumns / width)
    fail_argument(ctx, "C4 parts and width are at least 1, and parts * width is at most 128",
                  "two such numbers", std::to_string(parts) + " and " + std::to_string(width));
  ctx.require_equal(parts * width, panels.sizes[2], "C5 panels have parts * width columns");
  Dims sizes(a.sizes.begin(), a.sizes.end() - 1);
  sizes.push_back(panels.sizes[0] * width);
  std::vector<TensorMeta> results;
  for (std::int64_t r = 0; r < parts; ++r) results.push_back(fresh(ctx, a.dtype, sizes));
  return results;
}

std::vector<Literal> evaluate_packed_split_matmul(const EvalContext& ctx) {
  const Literal& panels = ctx.inputs[1];
  const std::int64_t parts = ctx.node.integer("parts");
  const Sizes& s = panels.sizes();
  const std::int64_t width = ctx.node.integer("width");
  const std::vector<double> packed = dense<double>(panels);
  std::vector<Literal> results;
  for (std::int64_t r = 0; r < parts; ++r) {
    std::vector<double> matrix;
    for (std::int64_t k = 0; k < s[1]; ++k)
      for (std::int64_t j = 0; j < s[0] * width; ++j)
        matrix.push_back(packed[static_cast<std::size_t>((j / width * s[1] + k) * s[2] + r * width +
                                                         j % width)]);
    results.push_back(matrix_product(ctx.inputs[0],
                                     literal_of(panels.dtype(), {s[1], s[0] * width}, matrix),
                                     ctx.output_sizes(static_cast<std::size_t>(r))));
  }
  return results;
}

}  // namespace

OpDef packed_split_matmul_op() {
  return {
      .name = "packed_split_matmul",
      .operands = {{"a"}, {"panels"}},
      .attrs = {{"parts", AttrKind::Int, {}}, {"width", AttrKind::Int, {}}},
      .outputs = -1,
      .infer = infer_packed_split_matmul,
      .evaluate = evaluate_packed_split_matmul,
      .lowering = {.nest = "packed_split_matmul"},
      .apart = {{1, {1}}},
  };
}

}  // namespace heddle::ir::ops
