// byte_panels: matrices of bytes as panels of columns, four elements of the depth side by side: the right operand of packed_int8_matmul, for
// matrices that are other ones in each run.
//
//   x        u8 or i8[..., k, n]
//   width    columns of a panel: w
//   result   i8[..., p, q, w, 4]: element (c, g, j, b) is x's element (4 g + b, c w + j), less 128 where x is u8, or 0 where x has none;
//            q = ceil(k / 4), p = ceil(n / w)
//
// Constraints. infer() checks them in this order; tests are named byte_panels_c1 ...
//   C1  x is u8 or i8
//   C2  x has at least two dimensions
//   C3  width is at least 1
//
// Memory: the result is fresh.
// Source: as packed_int8_matmul.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kBytesOfGroup = 4;
constexpr std::int64_t kMiddleByte = 128;

std::vector<TensorMeta> infer_byte_panels(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  if (!is_byte(x.dtype)) ctx.fail_dtype("C1 x", "u8 or i8", std::string(name_of(x.dtype)));
  if (x.rank() < 2)
    ctx.fail_shape("C2 x has at least two dimensions", "sizes [..., k, n]", text_of(x.sizes));
  const std::int64_t width = ctx.integer("width");
  if (width < 1) fail_argument(ctx, "C3 width is at least 1", "1 or more", std::to_string(width));
  Dims sizes = batch_sizes(x);
  const SymExpr& depth = x.sizes[x.sizes.size() - 2];
  sizes.insert(sizes.end(), {ceildiv(x.sizes.back(), width), ceildiv(depth, kBytesOfGroup), width,
                             kBytesOfGroup});
  return one(fresh(ctx, DType::I8, std::move(sizes)));
}

std::vector<Literal> evaluate_byte_panels(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const std::vector<std::int64_t> given = dense<std::int64_t>(x);
  const Sizes sizes = ctx.output_sizes();
  const std::int64_t moved = x.dtype() == DType::U8 ? kMiddleByte : 0;
  const std::int64_t n = x.sizes().back(), k = x.sizes()[x.sizes().size() - 2];
  const std::int64_t width = sizes[sizes.size() - 2], groups = sizes[sizes.size() - 3];
  const std::int64_t panels = sizes[sizes.size() - 4];
  std::vector<std::int64_t> made(static_cast<std::size_t>(element_count(sizes)));
  const std::int64_t each = panels * groups * width * kBytesOfGroup;
  for (std::int64_t at = 0; at < x.count(); ++at) {
    const std::int64_t matrix = at / (k * n), row = at / n % k, column = at % n;
    const std::int64_t group = column / width * groups + row / kBytesOfGroup;
    const std::int64_t place = (group * width + column % width) * kBytesOfGroup;
    made[static_cast<std::size_t>(matrix * each + place + row % kBytesOfGroup)] =
        given[static_cast<std::size_t>(at)] - moved;
  }
  return {literal_of(DType::I8, sizes, made)};
}

}  // namespace

OpDef byte_panels_op() {
  return {.name = "byte_panels",
          .operands = {{"x"}},
          .attrs = {{"width", AttrKind::Int, {}}},
          .infer = infer_byte_panels,
          .evaluate = evaluate_byte_panels,
          .lowering = {.nest = "byte_panels"},
          .apart = {{4, {2}}}};
}

}  // namespace heddle::ir::ops
