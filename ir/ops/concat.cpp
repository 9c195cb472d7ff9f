// concat: tensors one after another along an axis.
//
//   xs      X_k[…], at least one, of one rank
//   axis    int; negative counts from the end
//   result  T[…] with T = promote of all; its size along axis is the sum of theirs
//
// Constraints. infer() checks them in this order; tests are named concat_c1 ...
//   C1  there is at least one operand
//   C2  axis lies in [-n, n)
//   C3  all operands have one rank
//   C4  sizes other than along axis are equal
//
// Memory: fresh.
// Source: ONNX Concat-13; StableHLO spec, "concatenate".
#include "heddle/error.h"
#include "ir/ops/common.h"
#include "ir/ops/concat_ops.h"
#include "ir/ops/host_scalar.h"
#include "ir/ops/pointwise.h"

namespace heddle::ir::ops {
namespace {

void check_operand(const InferContext& ctx, std::size_t k, std::int64_t axis) {
  const TensorMeta& first = ctx.meta(0);
  const TensorMeta& x = ctx.meta(k);
  if (x.rank() != first.rank()) {
    ctx.fail_shape("C3 rank", "rank " + std::to_string(first.rank()),
                   "rank " + std::to_string(x.rank()) + " of operand " + std::to_string(k));
  }
  for (std::int64_t d = 0; d < x.rank(); ++d) {
    if (d != axis) ctx.require_equal(first.sizes[d], x.sizes[d], "C4 sizes");
  }
}

std::vector<TensorMeta> infer_concat(const InferContext& ctx) {
  if (ctx.inputs.empty()) {
    throw ArgumentError({.what = "concat: C1 operands",
                         .where = ctx.location.to_string(),
                         .expected = "at least one operand",
                         .got = "none"});
  }
  Dims sizes = ctx.meta(0).sizes;
  const std::int64_t axis = ctx.axis(ctx.integer("axis"), ctx.meta(0).rank(), "C2 axis");
  for (std::size_t k = 1; k < ctx.inputs.size(); ++k) {
    check_operand(ctx, k, axis);
    sizes[axis] += ctx.meta(k).sizes[axis];
  }
  return one(fresh(ctx, promoted(ctx), std::move(sizes)));
}

std::vector<Literal> evaluate_concat(const EvalContext& ctx) {
  const DType dtype = ctx.node.output(0).dtype;
  const std::int64_t axis = from_front(ctx.node.integer("axis"), ctx.inputs[0].rank());
  Sizes sizes = ctx.inputs[0].sizes();
  sizes[axis] = 0;
  for (const Literal& x : ctx.inputs) sizes[axis] += x.sizes()[axis];
  Literal result(dtype, sizes);
  std::int64_t offset = 0;
  for (const Literal& x : ctx.inputs) {
    for (std::int64_t p = 0; p < x.count(); ++p) {
      Sizes index = index_at(p, x.sizes());
      index[axis] += offset;
      store(result, position_of(index, sizes), convert(load(x, p), dtype));
    }
    offset += x.sizes()[axis];
  }
  return {std::move(result)};
}

/// Operand k where the result's position along the axis lies in [begin, end) of the result.
struct Piece {
  Scalar before_end;
  Scalar value;
};

Piece piece(ElementBuilder& builder, const Node& node, std::size_t k, std::int64_t axis,
            const SymExpr& begin, std::span<const SymExpr> index) {
  using Op = base::Predicate::Op;
  const DType dtype = node.output(0).dtype;
  std::vector<SymExpr> at(index.begin(), index.end());
  at[axis] = index[axis] - begin;
  const SymExpr end = begin + node.input(k).meta().sizes[axis];
  const Scalar from_begin = builder.predicate({Op::Le, begin, index[axis]});
  const Scalar before_end = builder.predicate({Op::Lt, index[axis], end});
  builder.begin_guard(builder.apply2(ScalarOp::And, from_begin, before_end));
  Scalar value = builder.operand(k, at);
  if (value.dtype != dtype) value = builder.convert(value, dtype);
  builder.end_guard();
  return {before_end, value};
}

Scalar element_concat(ElementBuilder& builder, const Node& node, std::uint32_t,
                      std::span<const SymExpr> index) {
  const std::int64_t axis = from_front(node.integer("axis"), node.output(0).rank());
  std::vector<Piece> pieces;
  SymExpr begin = 0;
  for (std::size_t k = 0; k < node.inputs().size(); ++k) {
    pieces.push_back(piece(builder, node, k, axis, begin, index));
    begin += node.input(k).meta().sizes[axis];
  }
  Scalar result = pieces.back().value;
  for (std::size_t k = pieces.size() - 1; k-- > 0;) {
    result = builder.select(pieces[k].before_end, pieces[k].value, result);
  }
  return result;
}

}  // namespace

OpDef concat_op() {
  return {
      .name = "concat",
      .takes_float8 = true,
      .operands = {{"xs", OperandSpec::Arity::Variadic}},
      .attrs = {{"axis", AttrKind::Int}},
      .infer = infer_concat,
      .evaluate = evaluate_concat,
      .lowering = {.element = element_concat},
      .reorder = reorder_axes,
  };
}

}  // namespace heddle::ir::ops
