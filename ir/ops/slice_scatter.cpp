// slice_scatter: a copy of x in which a window along one axis is replaced.
//
//   x       T[d0 .. dn-1]
//   update  T[d0 .. dn-1], but of m along axis
//   axis    the dimension that the window lies along; negative counts from the end
//   start   symint, in elements: where the window begins
//   result  T[d0 .. dn-1]; element i is update's at i with i_axis - start where start <= i_axis <
//           start + m, else x's
//
// Constraints. infer() checks them in this order; tests are named slice_scatter_c1 ...
//   C1  update has the dtype of x
//   C2  axis lies within the rank of x
//   C3  x and update have one rank
//   C4  sizes other than along axis are equal
//   C5  0 <= start and start + m <= d_axis
//
// Memory: the result may take the bytes of x; after reinplace it may overwrite x, the window only.
// Lowering: nest "slice_scatter" where it overwrites x; else decompose gives a concat.
// Source: PyTorch, "slice_scatter" with step 1; StableHLO spec, "dynamic_update_slice".
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/scatter_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_slice_scatter(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const TensorMeta& update = ctx.meta(1);
  check_update_dtype(ctx, 1, "C1 update has the dtype of x");
  const std::int64_t axis =
      ctx.axis(ctx.integer("axis"), x.rank(), "C2 axis lies within the rank of x");
  if (update.rank() != x.rank())
    ctx.fail_shape("C3 x and update have one rank", "rank " + std::to_string(x.rank()),
                   "rank " + std::to_string(update.rank()));
  for (std::int64_t d = 0; d < x.rank(); ++d)
    if (d != axis)
      ctx.require_equal(update.sizes[d], x.sizes[d], "C4 sizes other than along axis are equal");
  const auto& start = std::get<SymExpr>(ctx.attrs.find("start")->second);
  const SymExpr end = start + update.sizes[axis];
  const std::string expected = "0 <= start <= end <= " + seen(ctx.env, x.sizes[axis]).to_string();
  const std::string got =
      "start " + seen(ctx.env, start).to_string() + ", end " + seen(ctx.env, end).to_string();
  require_le(ctx, 0, start, "C5 window", expected, got);
  require_le(ctx, end, x.sizes[axis], "C5 window", expected, got);
  return one(fresh(ctx, x.dtype, x.sizes));
}

std::vector<Literal> evaluate_slice_scatter(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Literal& update = ctx.inputs[1];
  const auto axis = static_cast<std::size_t>(from_front(ctx.node.integer("axis"), x.rank()));
  const std::int64_t start = std::get<SymExpr>(ctx.node.attr("start")).evaluate(ctx.sizes);
  std::vector<std::int64_t> destinations;
  for (std::int64_t p = 0; p < update.count(); ++p) {
    Sizes at = index_at(p, update.sizes());
    at[axis] += start;
    destinations.push_back(position_of(at, x.sizes()));
  }
  return {joined(x, update, destinations, "none")};
}

Value part_of(DecomposeContext& ctx, std::size_t axis, const SymExpr& begin, const SymExpr& end) {
  const Dims& sizes = ctx.inputs[0].meta().sizes;
  Dims start(sizes.size(), SymExpr(0));
  Dims limit = sizes;
  start[axis] = begin;
  limit[axis] = end;
  const Dims stride(sizes.size(), SymExpr(1));
  return ctx.emit("slice", {ctx.inputs[0]},
                  {{"start", start}, {"limit", limit}, {"stride", stride}});
}

///   %r = slice_scatter(%x: f32[2, 9], %u: f32[2, 3]) {axis = 1, start = 4}
///     ==>
///   %r = concat(slice(%x) [:, 0:4], %u, slice(%x) [:, 7:9]) {axis = 1}
std::vector<Value> decompose_slice_scatter(DecomposeContext& ctx) {
  if (overwrites(ctx.node, 0)) return {};
  const Dims& sizes = ctx.inputs[0].meta().sizes;
  const std::int64_t axis =
      from_front(ctx.node.integer("axis"), static_cast<std::int64_t>(sizes.size()));
  const auto at = static_cast<std::size_t>(axis);
  const auto& start = std::get<SymExpr>(ctx.node.attr("start"));
  const SymExpr end = start + ctx.inputs[1].meta().sizes[at];
  return {ctx.emit("concat",
                   {part_of(ctx, at, 0, start), ctx.inputs[1], part_of(ctx, at, end, sizes[at])},
                   {{"axis", axis}})};
}

}  // namespace

OpDef slice_scatter_op() {
  return {.name = "slice_scatter",
          .takes_float8 = true,
          .operands = {{"x"}, {"update"}},
          .attrs = {{"axis", AttrKind::Int, {}}, {"start", AttrKind::SymInt, {}}, in_place_attr()},
          .infer = infer_slice_scatter,
          .alias = reuse_first,
          .evaluate = evaluate_slice_scatter,
          .lowering = {.decompose = decompose_slice_scatter, .nest = "slice_scatter"},
          .in_place = {{0, 0}}};
}

}  // namespace heddle::ir::ops
