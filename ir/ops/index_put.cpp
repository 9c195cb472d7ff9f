// index_put: a copy of x in which the elements that x[i_0, …, i_k-1] names are replaced, or added
// to.
//
//   x            T[d0 .. dn-1]
//   values       T[...] that broadcasts to B + [dk .. dn-1]
//   indices...   k operands of integer dtypes that broadcast together to sizes B; index j
//                addresses dimension j of x, negative ones count from its end
//   accumulate   add to what is there instead of replacing it
//   result       T[d0 .. dn-1]
//
//   for each j in B, in row-major order, and each r in [dk .. dn-1]:
//     result[i_0[j], …, i_k-1[j], r] = values[j, r]   (or += with accumulate)
//
// Repeated destinations and indices out of range: as scatter_elements.
//
// Constraints. infer() checks them in this order; tests are named index_put_c1 ...
//   C1  values have the dtype of x
//   C2  indices are integers
//   C3  x is a number, and no 8-bit float, where accumulate is set
//   C4  there are between one and rank-of-x index operands
//   C5  the index operands broadcast together
//   C6  values broadcast to the sizes of x at the indices
//
// Memory: the result may take the bytes of x; after reinplace it may overwrite x, updates only.
// Lowering: nest "scatter"; decompose gives scatter_nd.
// Source: NumPy, "Integer array indexing"; PyTorch, "index_put".
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/indexing.h"
#include "ir/ops/scatter_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::size_t kFirstIndex = 2;

std::vector<TensorMeta> infer_index_put(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  check_update_dtype(ctx, 1, "C1 values have the dtype of x");
  for (std::size_t k = kFirstIndex; k < ctx.inputs.size(); ++k) {
    require_integer_indices(ctx, k, "C2 indices are integers");
  }
  if (ctx.flag("accumulate")) require_number(ctx, 0, "C3 x is a number where accumulate is set");
  const auto count = static_cast<std::int64_t>(ctx.inputs.size() - kFirstIndex);
  if (count < 1 || count > x.rank()) {
    ctx.fail_shape("C4 there are between one and rank-of-x index operands",
                   "1 to " + std::to_string(x.rank()), std::to_string(count));
  }
  Dims picked = ctx.meta(kFirstIndex).sizes;
  for (std::size_t k = kFirstIndex + 1; k < ctx.inputs.size(); ++k) {
    picked = ctx.broadcast(picked, ctx.meta(k).sizes, "C5 the index operands broadcast together");
  }
  picked.insert(picked.end(), x.sizes.begin() + count, x.sizes.end());
  require_broadcast_to(ctx, ctx.meta(1).sizes, picked,
                       "C6 values broadcast to the sizes of x at the indices");
  return one(fresh(ctx, x.dtype, x.sizes));
}

std::vector<Literal> evaluate_index_put(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const std::span<const Literal> operands = ctx.inputs.subspan(kFirstIndex);
  std::vector<Sizes> shapes;
  for (const Literal& operand : operands) shapes.push_back(operand.sizes());
  const Sizes picked = broadcast_sizes(shapes);
  std::vector<Literal> indices;
  for (const Literal& operand : operands) indices.push_back(broadcast_to(operand, picked));

  const Sizes slice(x.sizes().begin() + static_cast<std::ptrdiff_t>(indices.size()),
                    x.sizes().end());
  Sizes update_sizes = picked;
  update_sizes.insert(update_sizes.end(), slice.begin(), slice.end());
  const Literal updates = broadcast_to(ctx.inputs[1], update_sizes);
  const std::int64_t slice_count = element_count(slice);
  std::vector<std::int64_t> destinations;
  for (std::int64_t p = 0; p < updates.count(); ++p) {
    std::int64_t to = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      const std::int64_t index = indices[d].at_int(p / slice_count);
      to = to * x.sizes()[d] + wrapped_index(ctx.node, index, x.sizes()[d]);
    }
    destinations.push_back(to * slice_count + p % slice_count);
  }
  return {joined(x, updates, destinations, ctx.node.flag("accumulate") ? "add" : "none")};
}

/// The common sizes of operands that infer() accepted: where one is not 1 it decides.
Dims broadcast_of(std::span<const Value> operands) {
  std::size_t rank = 0;
  for (const Value& operand : operands) rank = std::max(rank, operand.meta().sizes.size());
  Dims result(rank, SymExpr(1));
  for (const Value& operand : operands) {
    const Dims& sizes = operand.meta().sizes;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      SymExpr& size = result[rank - sizes.size() + d];
      if (size.is_constant(1)) size = sizes[d];
    }
  }
  return result;
}

/// Index operands side by side as one tensor of vectors, and values in full size.
///
///   %r = index_put(%x: f32[4, 5, 6], %v: f32[6], %i: i64[3], %j: i64[1])
///     ==>
///   %n = concat(reshape(%i) [3, 1], reshape(expand(%j) [3]) [3, 1]) {axis = 1}
///   %r = scatter_nd(%x, %n, expand(%v) [3, 6])
std::vector<Value> decompose_index_put(DecomposeContext& ctx) {
  const Dims& x = ctx.inputs[0].meta().sizes;
  const std::span<const Value> operands = std::span<const Value>(ctx.inputs).subspan(kFirstIndex);
  const Dims picked = broadcast_of(operands);
  Dims column = picked;
  column.push_back(1);
  std::vector<Value> columns;
  for (const Value& operand : operands) {
    columns.push_back(emit_reshape(
        ctx, emit_expand(ctx, emit_convert(ctx, operand, DType::I64), picked), column));
  }
  const Attrs along_last = {{"axis", static_cast<std::int64_t>(picked.size())}};
  const Value vectors = ctx.builder.call("concat", columns, along_last)->value();

  Dims update_sizes = picked;
  update_sizes.insert(update_sizes.end(), x.begin() + static_cast<std::ptrdiff_t>(operands.size()),
                      x.end());
  const std::string reduction = ctx.node.flag("accumulate") ? "add" : "none";
  const Value updates = emit_expand(ctx, ctx.inputs[1], update_sizes);
  return {ctx.emit("scatter_nd", {ctx.inputs[0], vectors, updates}, {{"reduction", reduction}})};
}

}  // namespace

OpDef index_put_op() {
  return {.name = "index_put",
          .takes_float8 = true,
          .operands = {{"x"}, {"values"}, {"indices", OperandSpec::Arity::Variadic}},
          .attrs = {{"accumulate", AttrKind::Bool, false}, in_place_attr()},
          .infer = infer_index_put,
          .alias = reuse_first,
          .evaluate = evaluate_index_put,
          .lowering = {.decompose = decompose_index_put, .nest = "scatter", .decompose_last = true},
          .in_place = {{0, 0}}};
}

}  // namespace heddle::ir::ops
