// permute: dimensions in another order.
//
//   x       T[d0 .. dn-1]
//   perm    int[n]; negative entries count from the end
//   result  T[d_perm0 .. d_perm(n-1)]; dimension k of the result is dimension perm_k of x
//
// Constraints. infer() checks them in this order; tests are named permute_c1 ...
//   C1  perm has one entry for each dimension
//   C2  perm names every dimension once
//
// Memory: a view of the operand.
// Source: ONNX Transpose-21; NumPy transpose.
#include "ir/ops/common.h"
#include "ir/ops/view_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<std::int64_t> checked_perm(const InferContext& ctx) {
  const std::int64_t rank = ctx.meta(0).rank();
  const auto& perm = ctx.ints("perm");
  if (static_cast<std::int64_t>(perm.size()) != rank) {
    ctx.fail_shape("C1 entries", std::to_string(rank) + " entries in perm", text_of(perm));
  }
  const auto sorted = sorted_axes(perm, rank);
  for (std::int64_t k = 0; k < rank; ++k) {
    if (sorted[k] == k) continue;
    ctx.fail_shape("C2 permutation", "each of " + std::to_string(rank) + " dimensions once",
                   text_of(perm));
  }
  return perm;
}

template <typename T>
std::vector<T> permuted(const std::vector<T>& values, std::span<const std::int64_t> perm) {
  std::vector<T> result;
  for (const std::int64_t axis : perm) {
    result.push_back(values[from_front(axis, static_cast<std::int64_t>(values.size()))]);
  }
  return result;
}

std::vector<TensorMeta> infer_permute(const InferContext& ctx) {
  const auto perm = checked_perm(ctx);
  TensorMeta result = ctx.meta(0);
  result.sizes = permuted(result.sizes, perm);
  result.strides = permuted(result.strides, perm);
  return one(std::move(result));
}

std::vector<Literal> evaluate_permute(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const auto& perm = ctx.node.ints("perm");
  return {x.view(permuted(x.sizes(), perm), permuted(x.strides(), perm), 0)};
}

std::vector<SymExpr> view_permute(const Node& node, std::span<const SymExpr> index) {
  const auto& perm = node.ints("perm");
  std::vector<SymExpr> mapped(index.size());
  for (std::size_t k = 0; k < perm.size(); ++k) {
    mapped[from_front(perm[k], static_cast<std::int64_t>(perm.size()))] = index[k];
  }
  return mapped;
}

}  // namespace

OpDef permute_op() {
  return {
      .name = "permute",
      .takes_float8 = true,
      .operands = {{"x"}},
      .attrs = {{"perm", AttrKind::Ints}},
      .infer = infer_permute,
      .alias = view_of_first,
      .evaluate = evaluate_permute,
      .lowering = {.view = view_permute},
  };
}

}  // namespace heddle::ir::ops
