// invoke: runs a graph that is compiled once, however often it is called.
//
//   operands  what the graph takes
//   body      graph
//   results   those of the graph
//
// Constraints. infer() checks them in this order.
//   C1  the graph takes the operands, has no parameters and writes nothing back
//
// Memory: a result that shares storage with an input of the graph is a view of that operand; the others are
// fresh.
#include "ir/ops/regions.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> arguments(std::span<const Value> inputs, const Attrs&) {
  return plain_arguments(inputs, 0);
}

std::vector<TensorMeta> infer(const InferContext& context) {
  const Graph& body = region(context, "body");
  const base::SymbolExprs sizes =
      check_region(context, body, arguments(context.inputs, context.attrs), "C1 body");
  std::vector<TensorMeta> results;
  for (std::size_t k = 0; k < body.outputs().size(); ++k)
    results.push_back(region_result(body, k, sizes));
  return results;
}

Alias alias(const Node& node, std::uint32_t output) {
  const Graph& body = node.graph("body");
  for (std::size_t k = 0; k < body.inputs().size(); ++k)
    if (body.inputs()[k].meta().storage == body.outputs()[output].meta().storage)
      return {Alias::Kind::View, k};
  return {};
}

std::vector<Literal> evaluate(const EvalContext& context) {
  return evaluate_region(context, "body", context.inputs);
}

}  // namespace

OpDef invoke_op() {
  OpDef op;
  op.name = "invoke";
  op.operands = {{"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"body", AttrKind::Graph, std::nullopt}};
  op.outputs = -1;
  op.infer = infer;
  op.alias = alias;
  op.evaluate = evaluate;
  op.region_arguments = arguments;
  op.lowering.region = RegionKind::Once;
  return op;
}

}  // namespace heddle::ir::ops
