// reshape: the same elements in row-major order under other sizes.
//
//   x       T[d0 .. dn-1]
//   sizes   symint[m]
//   result  T[sizes]; element k in row-major order is x's element k
//
// Constraints. infer() checks them in this order; tests are named reshape_c1 ...
//   C1  no size is negative
//   C2  the product of sizes is the number of elements of x
//
// Memory: a view of the operand where strides can say it (always when x is row-major); a row-major
// copy otherwise, as of a transposed matrix made flat.
// Source: ONNX Reshape-21 once 0 and -1 are resolved; NumPy reshape, order C.
#include "ir/ops/common.h"
#include "ir/ops/view_ops.h"

namespace heddle::ir::ops {
namespace {

void check_sizes(const InferContext& ctx, const Dims& sizes, std::string_view label) {
  for (const SymExpr& size : sizes) {
    if (size.is_constant() && size.constant() < 0) {
      ctx.fail_shape(label, "sizes of at least 0", text_of(seen(ctx.env, sizes)));
    }
  }
}

std::vector<TensorMeta> infer_reshape(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const Dims& sizes = ctx.symints("sizes");
  check_sizes(ctx, sizes, "C1 sizes");
  ctx.require_equal(x.count(), base::product(sizes), "C2 element count");
  TensorMeta result = fresh(ctx, x.dtype, sizes);
  if (auto strides = reshape_strides(x.sizes, x.strides, sizes)) {
    result.strides = std::move(*strides);
    result.storage = x.storage;
  }
  return one(std::move(result));
}

Alias alias_reshape(const Node& node, std::uint32_t) {
  const TensorMeta& x = node.input(0).meta();
  const bool viewable = reshape_strides(x.sizes, x.strides, node.output(0).sizes).has_value();
  return {.kind = viewable ? Alias::Kind::View : Alias::Kind::Fresh, .operand = 0};
}

Dims as_dims(const Sizes& sizes) { return Dims(sizes.begin(), sizes.end()); }

std::vector<Literal> evaluate_reshape(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Sizes sizes = ctx.concrete_attr("sizes");
  const auto strides = reshape_strides(as_dims(x.sizes()), as_dims(x.strides()), as_dims(sizes));
  if (!strides) return {x.contiguous().view(sizes, row_major_strides(sizes), 0)};
  Sizes concrete;
  for (const SymExpr& stride : *strides) concrete.push_back(stride.constant());
  return {x.view(sizes, concrete, 0)};
}

/// Row-major position of `index` within the dimensions `dims` of `sizes`.
SymExpr linearise(const std::vector<std::size_t>& dims, std::span<const SymExpr> sizes,
                  std::span<const SymExpr> index) {
  SymExpr position = 0;
  for (const std::size_t d : dims) position = position * sizes[d] + index[d];
  return position;
}

/// Writes the index of row-major `position` within the dimensions `dims` of `sizes`.
void split(const std::vector<std::size_t>& dims, std::span<const SymExpr> sizes, SymExpr position,
           std::vector<SymExpr>& index) {
  SymExpr inner = 1;
  for (std::size_t k = dims.size(); k-- > 0;) {
    const SymExpr quotient = inner.is_constant(1) ? position : floordiv(position, inner);
    index[dims[k]] = k == 0 ? quotient : mod(quotient, sizes[dims[k]]);
    inner *= sizes[dims[k]];
  }
}

bool is_empty(std::span<const SymExpr> sizes) { return base::product(sizes).is_constant(0); }

std::vector<SymExpr> view_reshape(const Node& node, std::span<const SymExpr> index) {
  const Dims& from = node.input(0).meta().sizes;
  const Dims& to = node.output(0).sizes;
  std::vector<SymExpr> mapped(from.size(), SymExpr(0));
  if (is_empty(from) || is_empty(to)) return mapped;
  for (const DimGroup& group : group_dims(from, to)) {
    split(group.from, from, linearise(group.to, to, index), mapped);
  }
  return mapped;
}

}  // namespace

OpDef reshape_op() {
  return {
      .name = "reshape",
      .takes_float8 = true,
      .operands = {{"x"}},
      .attrs = {{"sizes", AttrKind::SymInts}},
      .infer = infer_reshape,
      .alias = alias_reshape,
      .evaluate = evaluate_reshape,
      .lowering = {.view = view_reshape},
  };
}

}  // namespace heddle::ir::ops
