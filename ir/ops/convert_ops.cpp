// convert: every element in another dtype.
//
//   x       S[d0 .. dn-1]
//   dtype   T
//   result  T[d0 .. dn-1]
//
// Float to integer truncates towards zero and saturates, NaN gives 0; integers wrap when narrowed;
// floats round to nearest even (f64 and integers reach floats of 8 and 16 bits by way of f32), and what is too large for
// them becomes infinity, or NaN where T has no infinity; f8e8m0fnu, of powers of two, takes the larger one of two that are
// as near, and NaN for what is not positive; to bool is "not zero".
//
// Constraints: none.
//
// Memory: fresh; may take the operand's bytes when S and T are equally wide.
// Source: WebAssembly's saturating truncation; IEEE 754 for roundings.
#include "ir/ops/bit_ops.h"
#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/pointwise.h"

namespace heddle::ir {
namespace {

std::vector<TensorMeta> infer_convert(const InferContext& ctx) {
  return ops::one(ops::fresh(ctx, ctx.dtype("dtype"), ctx.meta(0).sizes));
}

std::vector<Literal> evaluate_convert(const EvalContext& ctx) {
  return ops::evaluate_points(ctx, [](const Node& node, std::span<const ops::HostScalar> operands) {
    return ops::convert(operands[0], node.dtype("dtype"));
  });
}

Scalar element_convert(ElementBuilder& builder, const Node& node, std::uint32_t,
                       std::span<const SymExpr> index) {
  return ops::operand_as(builder, node, 0, index, node.dtype("dtype"));
}

}  // namespace

std::span<const OpDef> convert_ops() {
  static const OpDef defs[] = {{
                                   .name = "convert",
                                   .takes_float8 = true,
                                   .operands = {{"x"}},
                                   .attrs = {{"dtype", AttrKind::DType}},
                                   .infer = infer_convert,
                                   .alias = ops::reuse_if_same_layout,
                                   .evaluate = evaluate_convert,
                                   .lowering = {.element = element_convert},
                                   .reorder = ops::reorder_pointwise,
                               },
                               ops::bit_panels_op(),
                               ops::byte_digits_op(),
                               ops::unpack_bits_op()};
  return defs;
}

}  // namespace heddle::ir
