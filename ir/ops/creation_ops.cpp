// iota: numbers that count along one axis.
//
//   sizes   symint[n]
//   axis    int = 0; negative counts from the end
//   dtype   T = i64, not bool
//   result  T[sizes]; the element at index i is i_axis in T (integers wrap, floats round)
//
// Constraints. infer() checks them in this order; tests are named iota_c1 ...
//   C1  no size is negative
//   C2  axis lies in [-n, n); so there is at least one dimension
//   C3  dtype is not bool
//
// Memory: fresh.
// Source: StableHLO spec, "iota".
#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/host_scalar.h"
#include "ir/ops/result_sizes.h"

namespace heddle::ir {
namespace {

std::vector<TensorMeta> infer_creation(const InferContext& ctx) {
  const Dims& sizes = ctx.symints("sizes");
  ops::require_sizes(ctx, sizes, "C1 sizes");
  ctx.axis(ctx.integer("axis"), static_cast<std::int64_t>(sizes.size()), "C2 axis");
  const DType dtype = ctx.dtype("dtype");
  if (dtype == DType::Bool || is_float8(dtype))
    ctx.fail_dtype("C3 dtype", "a number dtype", ops::text_of(dtype));
  return ops::one(ops::fresh(ctx, dtype, sizes));
}

std::vector<Literal> evaluate_creation(const EvalContext& ctx) {
  const DType dtype = ctx.node.dtype("dtype");
  Literal result(dtype, ctx.concrete_attr("sizes"));
  const std::int64_t axis = ops::from_front(ctx.node.integer("axis"), result.rank());
  for (std::int64_t p = 0; p < result.count(); ++p) {
    const std::int64_t value = ops::index_at(p, result.sizes())[axis];
    ops::store(result, p, ops::convert(ops::HostScalar::of_integer(DType::I64, value), dtype));
  }
  return {std::move(result)};
}

Scalar element_creation(ElementBuilder& builder, const Node& node, std::uint32_t,
                        std::span<const SymExpr> index) {
  const std::int64_t axis = ops::from_front(node.integer("axis"), node.output(0).rank());
  const Scalar value = builder.from_index(index[axis]);
  const DType dtype = node.dtype("dtype");
  return dtype == value.dtype ? value : builder.convert(value, dtype);
}

}  // namespace

std::span<const OpDef> creation_ops() {
  static const OpDef ops[] = {{
      .name = "iota",
      .attrs = {{"sizes", AttrKind::SymInts},
                {"axis", AttrKind::Int, Attr(std::int64_t{0})},
                {"dtype", AttrKind::DType, Attr(DType::I64)}},
      .infer = infer_creation,
      .evaluate = evaluate_creation,
      .lowering = {.element = element_creation},
  }};
  return ops;
}

}  // namespace heddle::ir
