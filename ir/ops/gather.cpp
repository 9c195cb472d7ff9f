// gather: slices of one operand picked by position along an axis.
//
//   x        T[d0 .. dn-1]
//   indices  I[q0 .. qm-1], integers; negative ones count from the end of the axis
//   axis     int = 0; negative counts from the end
//   result   T[d0 .. d_axis-1, q0 .. qm-1, d_axis+1 .. dn-1];
//            result[a…, i…, b…] = x[a…, indices[i…], b…]
//
// Constraints. infer() checks them in this order; tests are named gather_c1 ...
//   C1  axis lies in [-n, n); so x has at least one dimension
//   C2  indices has an integer dtype
// At run time an index outside [-d_axis, d_axis) is an IndexError.
//
// Memory: fresh.
// Source: ONNX Gather-13; NumPy take.
#include "ir/ops/common.h"
#include "ir/ops/gather_ops.h"
#include "ir/ops/host_scalar.h"
#include "ir/ops/indexing.h"

namespace heddle::ir::ops {
namespace {

/// `x` with its entry `axis` replaced by all of `inserted`.
template <typename T>
std::vector<T> spliced(const std::vector<T>& x, std::int64_t axis, const std::vector<T>& inserted) {
  std::vector<T> result(x.begin(), x.begin() + axis);
  result.insert(result.end(), inserted.begin(), inserted.end());
  result.insert(result.end(), x.begin() + axis + 1, x.end());
  return result;
}

std::vector<TensorMeta> infer_gather(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const std::int64_t axis = ctx.axis(ctx.integer("axis"), x.rank(), "C1 axis");
  require_integer_indices(ctx, 1, "C2 indices");
  return one(fresh(ctx, x.dtype, spliced(x.sizes, axis, ctx.meta(1).sizes)));
}

std::vector<Literal> evaluate_gather(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Literal& indices = ctx.inputs[1];
  const std::int64_t axis = from_front(ctx.node.integer("axis"), x.rank());
  Literal result(x.dtype(), spliced(x.sizes(), axis, indices.sizes()));
  for (std::int64_t p = 0; p < result.count(); ++p) {
    const Sizes at = index_at(p, result.sizes());
    const auto picked = at.begin() + axis;
    const Sizes which(picked, picked + indices.rank());
    Sizes from(at.begin(), picked);
    from.push_back(wrapped_index(ctx.node, indices.at_int(position_of(which, indices.sizes())),
                                 x.sizes()[axis]));
    from.insert(from.end(), picked + indices.rank(), at.end());
    store(result, p, load(x, position_of(from, x.sizes())));
  }
  return {std::move(result)};
}

Scalar element_gather(ElementBuilder& builder, const Node& node, std::uint32_t,
                      std::span<const SymExpr> index) {
  const TensorMeta& x = node.input(0).meta();
  const std::int64_t axis = from_front(node.integer("axis"), x.rank());
  const auto picked = static_cast<std::size_t>(node.input(1).meta().rank());
  const Scalar value = builder.operand(1, index.subspan(axis, picked));
  std::vector<SymExpr> from(index.begin(), index.begin() + axis);
  from.push_back(wrapped_index(builder, value, x.sizes[axis]));
  from.insert(from.end(), index.begin() + axis + picked, index.end());
  return builder.operand(0, from);
}

}  // namespace

OpDef gather_op() {
  return {
      .name = "gather",
      .takes_float8 = true,
      .operands = {{"x"}, {"indices"}},
      .attrs = {{"axis", AttrKind::Int, Attr(std::int64_t{0})}},
      .infer = infer_gather,
      .evaluate = evaluate_gather,
      .lowering = {.element = element_gather},
  };
}

}  // namespace heddle::ir::ops
