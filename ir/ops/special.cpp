// The ops that graphs begin with.
//
//   input  {donated}      an argument of the graph; its type is given, not inferred. The attribute is there, and
//                         true, where nobody reads the memory after the run
//   param                 a captured parameter; the same
//   const  {value}        the literal; a view of its bytes, never written
//   symint {value, dtype} a symbolic size as a scalar: dtype[]
//
// Constraints:
//   symint C1  dtype is an integer
//
// Memory: input and param own what the caller gave; const shares the literal; symint is fresh.
#include <string>

#include "base/check.h"
#include "ir/ops/families.h"

namespace heddle::ir {
namespace {

std::vector<TensorMeta> infer_given(const InferContext& context) {
  HD_CHECK(false, "the type of '" + std::string(context.op.name) + "' is given, not inferred");
}

std::vector<TensorMeta> infer_const(const InferContext& context) {
  const Literal& value = context.literal("value");
  return {TensorMeta::of(value.dtype(), Dims(value.sizes().begin(), value.sizes().end()))};
}

std::vector<Literal> evaluate_const(const EvalContext& context) {
  return {context.node.literal("value")};
}

std::vector<TensorMeta> infer_symint(const InferContext& context) {
  const DType dtype = context.dtype("dtype");
  if (!is_integer(dtype)) context.fail_dtype("C1", "an integer", std::string(name_of(dtype)));
  return {TensorMeta::of(dtype, {})};
}

std::vector<Literal> evaluate_symint(const EvalContext& context) {
  const SymExpr& value = std::get<SymExpr>(context.node.attr("value"));
  return {Literal::scalar_int(context.node.dtype("dtype"), value.evaluate(context.sizes))};
}

Scalar element_symint(ElementBuilder& builder, const Node& node, std::uint32_t,
                      std::span<const SymExpr>) {
  return builder.convert(builder.from_index(std::get<SymExpr>(node.attr("value"))),
                         node.dtype("dtype"));
}

OpDef given(std::string_view name) {
  OpDef op;
  op.name = name;
  op.infer = infer_given;
  op.pure = false;
  return op;
}

OpDef const_op() {
  OpDef op;
  op.name = "const";
  op.attrs = {{"value", AttrKind::Literal, std::nullopt}};
  op.infer = infer_const;
  op.evaluate = evaluate_const;
  return op;
}

OpDef symint_op() {
  OpDef op;
  op.name = "symint";
  op.attrs = {{"value", AttrKind::SymInt, std::nullopt}, {"dtype", AttrKind::DType, Attr(i64)}};
  op.infer = infer_symint;
  op.evaluate = evaluate_symint;
  op.lowering.element = element_symint;
  return op;
}

}  // namespace

std::span<const OpDef> special_ops() {
  static const OpDef ops[] = {given("input"), given("param"), const_op(), symint_op()};
  return ops;
}

}  // namespace heddle::ir
