// unfold: windows along one dimension, which may overlap, without a copy.
//
//   x       T[d0 .. dn-1]
//   axis    int; negative counts from the end
//   size    int, elements of a window
//   step    int, elements from the beginning of a window to that of the next
//   result  T[d0 .. floor((d_axis - size) / step) + 1 .. dn-1, size];
//           element k of window i is x's i * step + k along the axis
//
// Constraints. infer() checks them in this order; tests are named unfold_c1 ...
//   C1  -n <= axis < n
//   C2  size >= 1 and step >= 1
//   C3  d_axis >= size
//
// Memory: a view of the operand; elements of several windows are named several times.
// Source: torch.Tensor.unfold.
#include "ir/ops/common.h"
#include "ir/ops/view_ops.h"

namespace heddle::ir::ops {
namespace {

std::size_t unfolded_axis(const Node& node, std::int64_t rank) {
  const std::int64_t axis = node.integer("axis");
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

std::vector<TensorMeta> infer_unfold(const InferContext& ctx) {
  TensorMeta result = ctx.meta(0);
  const auto d = static_cast<std::size_t>(ctx.axis(ctx.integer("axis"), result.rank(), "C1 axis"));
  for (const std::string_view name : {"size", "step"})
    if (ctx.integer(name) < 1)
      ctx.fail_shape("C2 size and step", std::string(name) + " >= 1",
                     std::to_string(ctx.integer(name)));
  const std::int64_t size = ctx.integer("size");
  const std::int64_t step = ctx.integer("step");
  require_le(ctx, size, result.sizes[d], "C3 window", "at least " + std::to_string(size),
             seen(ctx.env, result.sizes[d]).to_string());
  const SymExpr stride = result.strides[d];
  result.sizes[d] = floordiv(result.sizes[d] - size, step) + 1;
  result.strides[d] *= step;
  result.sizes.emplace_back(size);
  result.strides.push_back(stride);
  return one(std::move(result));
}

std::vector<Literal> evaluate_unfold(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const std::size_t d = unfolded_axis(ctx.node, x.rank());
  const std::int64_t size = ctx.node.integer("size");
  const std::int64_t step = ctx.node.integer("step");
  Sizes sizes = x.sizes();
  Sizes strides = x.strides();
  sizes[d] = (sizes[d] - size) / step + 1;
  sizes.push_back(size);
  strides.push_back(strides[d]);
  strides[d] *= step;
  return {x.view(sizes, strides, 0)};
}

std::vector<SymExpr> view_unfold(const Node& node, std::span<const SymExpr> index) {
  std::vector<SymExpr> mapped(index.begin(), index.end() - 1);
  SymExpr& at = mapped[unfolded_axis(node, node.input(0).meta().rank())];
  at = at * node.integer("step") + index.back();
  return mapped;
}

}  // namespace

OpDef unfold_op() {
  return {
      .name = "unfold",
      .takes_float8 = true,
      .operands = {{"x"}},
      .attrs = {{"axis", AttrKind::Int}, {"size", AttrKind::Int}, {"step", AttrKind::Int}},
      .infer = infer_unfold,
      .alias = view_of_first,
      .evaluate = evaluate_unfold,
      .lowering = {.view = view_unfold},
  };
}

}  // namespace heddle::ir::ops
