// gather_nd: slices of one operand picked by tuples of positions.
//
//   x           T[d0 .. dn-1]
//   indices     I[b0 .. b_batch-1, q…, t], integers; negative ones count from the end of their
//               dimension
//   batch_dims  int = 0: how many leading dimensions x and indices go through together
//   result      T[b…, q…, d_(batch+t) .. dn-1];
//               result[b…, i…, r…] = x[b…, indices[b…, i…, 0 .. t-1], r…]
//
// Constraints. infer() checks them in this order; tests are named gather_nd_c1 ...
//   C1  indices has an integer dtype
//   C2  0 <= batch_dims < rank of indices, and batch_dims <= rank of x
//   C3  t, the last size of indices, is a known number, with batch_dims + t <= n
//   C4  the leading batch_dims sizes of x and indices are equal
// At run time an index outside [-d_k, d_k) of its dimension is an IndexError.
//
// Memory: fresh.
// Source: ONNX GatherND-13.
#include "ir/known_sizes.h"
#include "ir/ops/common.h"
#include "ir/ops/gather_ops.h"
#include "ir/ops/host_scalar.h"
#include "ir/ops/indexing.h"

namespace heddle::ir::ops {
namespace {

void check_batch(const InferContext& ctx) {
  const std::int64_t batch = ctx.integer("batch_dims");
  if (batch >= 0 && batch < ctx.meta(1).rank() && batch <= ctx.meta(0).rank()) return;
  ctx.fail_shape("C2 batch_dims",
                 "0 <= batch_dims < " + std::to_string(ctx.meta(1).rank()) +
                     " and batch_dims <= " + std::to_string(ctx.meta(0).rank()),
                 std::to_string(batch));
}

std::int64_t checked_tuple(const InferContext& ctx) {
  const std::int64_t free = ctx.meta(0).rank() - ctx.integer("batch_dims");
  const SymExpr& last = ctx.meta(1).sizes.back();
  const auto tuple = number_of(ctx.env, last, "gather_nd: C3 tuple length", ctx.location);
  if (!tuple || *tuple > free) {
    ctx.fail_shape("C3 tuple length",
                   "a last size of indices that is a number of at most " + std::to_string(free),
                   seen(ctx.env, last).to_string());
  }
  return *tuple;
}

std::vector<TensorMeta> infer_gather_nd(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const TensorMeta& indices = ctx.meta(1);
  require_integer_indices(ctx, 1, "C1 indices");
  check_batch(ctx);
  const std::int64_t batch = ctx.integer("batch_dims");
  const std::int64_t tuple = checked_tuple(ctx);
  for (std::int64_t d = 0; d < batch; ++d) {
    ctx.require_equal(x.sizes[d], indices.sizes[d], "C4 batch sizes");
  }
  Dims sizes(indices.sizes.begin(), indices.sizes.end() - 1);
  sizes.insert(sizes.end(), x.sizes.begin() + batch + tuple, x.sizes.end());
  return one(fresh(ctx, x.dtype, std::move(sizes)));
}

Sizes result_sizes(const Literal& x, const Literal& indices, std::int64_t batch) {
  Sizes sizes(indices.sizes().begin(), indices.sizes().end() - 1);
  sizes.insert(sizes.end(), x.sizes().begin() + batch + indices.sizes().back(), x.sizes().end());
  return sizes;
}

std::vector<Literal> evaluate_gather_nd(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Literal& indices = ctx.inputs[1];
  const std::int64_t batch = ctx.node.integer("batch_dims");
  Literal result(x.dtype(), result_sizes(x, indices, batch));
  for (std::int64_t p = 0; p < result.count(); ++p) {
    const Sizes at = index_at(p, result.sizes());
    const auto rest = at.begin() + indices.rank() - 1;
    Sizes which(at.begin(), rest);
    which.push_back(0);
    Sizes from(at.begin(), at.begin() + batch);
    for (std::int64_t k = 0; k < indices.sizes().back(); ++k) {
      which.back() = k;
      from.push_back(wrapped_index(ctx.node, indices.at_int(position_of(which, indices.sizes())),
                                   x.sizes()[batch + k]));
    }
    from.insert(from.end(), rest, at.end());
    store(result, p, load(x, position_of(from, x.sizes())));
  }
  return {std::move(result)};
}

Scalar element_gather_nd(ElementBuilder& builder, const Node& node, std::uint32_t,
                         std::span<const SymExpr> index) {
  const Dims& sizes = node.input(0).meta().sizes;
  const Dims& index_sizes = node.input(1).meta().sizes;
  const std::int64_t batch = node.integer("batch_dims");
  const std::size_t picked = index_sizes.size() - 1;
  std::vector<SymExpr> which(index.begin(), index.begin() + picked);
  which.push_back(0);
  std::vector<SymExpr> from(index.begin(), index.begin() + batch);
  for (std::int64_t k = 0; k < index_sizes.back().constant(); ++k) {
    which.back() = k;
    from.push_back(wrapped_index(builder, builder.operand(1, which), sizes[batch + k]));
  }
  from.insert(from.end(), index.begin() + picked, index.end());
  return builder.operand(0, from);
}

}  // namespace

OpDef gather_nd_op() {
  return {
      .name = "gather_nd",
      .takes_float8 = true,
      .operands = {{"x"}, {"indices"}},
      .attrs = {{"batch_dims", AttrKind::Int, Attr(std::int64_t{0})}},
      .infer = infer_gather_nd,
      .evaluate = evaluate_gather_nd,
      .lowering = {.element = element_gather_nd},
  };
}

}  // namespace heddle::ir::ops
