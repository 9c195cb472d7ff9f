#include "ir/ops/pointwise.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "ir/ops/common.h"

namespace heddle::ir::ops {

Dims broadcast_all(const InferContext& ctx, std::string_view label) {
  std::optional<Dims> sizes;
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) {
    if (!ctx.has(k)) continue;
    sizes = sizes ? ctx.broadcast(*sizes, ctx.meta(k).sizes, label) : ctx.meta(k).sizes;
  }
  return sizes.value_or(Dims{});
}

DType promoted(const InferContext& ctx, std::size_t first) {
  DType dtype = ctx.meta(first).dtype;
  for (std::size_t k = first + 1; k < ctx.inputs.size(); ++k) {
    if (!ctx.has(k)) continue;
    const DType other = ctx.meta(k).dtype;
    if (dtype != other && (is_float8(dtype) || is_float8(other)))
      ctx.fail_dtype(ctx.op.operands[std::min(k, ctx.op.operands.size() - 1)].name,
                     text_of(dtype) + " (8-bit floats are not converted by themselves)",
                     text_of(other));
    dtype = promote(dtype, other);
  }
  return dtype;
}

DType promoted(const Node& node, std::size_t first) {
  DType dtype = node.input(first).meta().dtype;
  for (std::size_t k = first + 1; k < node.inputs().size(); ++k) {
    if (node.input(k)) dtype = promote(dtype, node.input(k).meta().dtype);
  }
  return dtype;
}

Scalar operand_as(ElementBuilder& builder, const Node& node, std::size_t k,
                  std::span<const SymExpr> index, DType dtype) {
  const auto mapped = broadcast_index(node.input(k).meta().sizes, node.output(0).sizes, index);
  const Scalar value = builder.operand(k, mapped);
  return value.dtype == dtype ? value : builder.convert(value, dtype);
}

std::vector<Literal> evaluate_points(const EvalContext& ctx, PointFn point) {
  std::vector<Sizes> shapes;
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) {
    if (ctx.has(k)) shapes.push_back(ctx.inputs[k].sizes());
  }
  Literal result(ctx.node.output(0).dtype, broadcast_sizes(shapes));
  std::vector<Literal> operands(ctx.inputs.size());
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) {
    if (ctx.has(k)) operands[k] = broadcast_to(ctx.inputs[k], result.sizes());
  }
  std::vector<HostScalar> elements(operands.size());
  for (std::int64_t p = 0; p < result.count(); ++p) {
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (ctx.has(k)) elements[k] = load(operands[k], p);
    }
    store(result, p, point(ctx.node, elements));
  }
  return {std::move(result)};
}

}  // namespace heddle::ir::ops
