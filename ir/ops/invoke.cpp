// invoke: runs a graph that is compiled once, however often it is called.
//
//   operands  what the graph takes
//   body      graph
//   results   those of the graph
//
// Constraints. infer() checks them in this order.
//   C1  the graph takes the operands, has no parameters and writes nothing back
//
// Without results the call gives a token, u8[0], that order can name.
// A size of a result that the graph finds at run time is a new one at each call.
// Memory: a result that shares storage with an input of the graph is a view of that operand; the others are
// fresh.
#include "ir/analysis/regions.h"
#include "ir/ops/regions.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> arguments_invoke(std::span<const Value> inputs, const Attrs&) {
  return plain_arguments(inputs, 0);
}

/// Sizes that the body finds at run time are other ones at each call.
void rename_late_sizes(const InferContext& context, const Graph& body, base::SymbolExprs& sizes) {
  const std::set<base::Symbol> late = late_sizes(context, body);
  for (const Value& output : body.outputs()) {
    std::vector<base::Symbol> symbols;
    for (const SymExpr& size : output.meta().sizes) size.collect_symbols(symbols);
    for (const base::Symbol& symbol : symbols)
      if (late.contains(symbol) && !sizes.contains(symbol))
        sizes.emplace(symbol, context.env.fresh_unbacked());
  }
}

std::vector<TensorMeta> infer_invoke(const InferContext& context) {
  const Graph& body = region(context, "body");
  base::SymbolExprs sizes =
      check_region(context, body, arguments_invoke(context.inputs, context.attrs), "C1 body");
  rename_late_sizes(context, body, sizes);
  std::vector<TensorMeta> results;
  for (std::size_t k = 0; k < body.outputs().size(); ++k)
    results.push_back(region_result(body, k, sizes));
  return or_token(std::move(results));
}

Alias alias_invoke(const Node& node, std::uint32_t output) {
  const Graph& body = node.graph("body");
  if (body.outputs().empty()) return {};
  for (std::size_t k = 0; k < body.inputs().size(); ++k)
    if (body.inputs()[k].meta().storage == body.outputs()[output].meta().storage)
      return {Alias::Kind::View, k};
  return {};
}

std::vector<Literal> evaluate_invoke(const EvalContext& context) {
  return or_token(context, evaluate_region(context, "body", context.inputs));
}

}  // namespace

OpDef invoke_op() {
  OpDef op;
  op.name = "invoke";
  op.operands = {{"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"body", AttrKind::Graph, std::nullopt}};
  op.outputs = -1;
  op.infer = infer_invoke;
  op.alias = alias_invoke;
  op.evaluate = evaluate_invoke;
  op.region_arguments = arguments_invoke;
  op.lowering.region = RegionKind::Once;
  return op;
}

}  // namespace heddle::ir::ops
