// cond: one of two graphs, chosen at run time.
//
//   predicate  bool[]
//   operands   what both graphs take
//   then, else graphs
//   results    those of the chosen graph
//
// Constraints. infer() checks them in this order.
//   C1  predicate is one bool
//   C2  both graphs take the operands: count, dtypes, ranks and sizes; they have no parameters
//   C3  both graphs give results of the same count, dtypes and ranks, and write nothing back
//
// Where the sizes of the two results differ, the result has a size known only at run time.
// Memory: the results are fresh.
#include <string>

#include "ir/evaluate.h"
#include "ir/ops/families.h"

namespace heddle::ir {
namespace {

const Graph& branch(const InferContext& context, std::string_view name) {
  return *std::get<GraphRef>(context.attrs.find(name)->second).graph;
}

/// What the size symbols of `graph` are in the surrounding one.
base::SymbolExprs check_operands(const InferContext& context, const Graph& graph) {
  const std::size_t count = context.inputs.size() - 1;
  if (graph.inputs().size() != count)
    context.fail_shape("C2 operands", std::to_string(graph.inputs().size()), std::to_string(count));
  base::SymbolExprs sizes;
  for (std::size_t k = 0; k < count; ++k) {
    const TensorMeta& wanted = graph.inputs()[k].meta();
    const TensorMeta& got = context.meta(k + 1);
    const bool fits = graph.inputs()[k].node->op_name() == "input" && wanted.dtype == got.dtype &&
                      wanted.rank() == got.rank();
    if (!fits) context.fail_shape("C2 operands", wanted.to_string(), got.to_string());
    for (std::size_t d = 0; d < wanted.sizes.size(); ++d)
      if (wanted.sizes[d].is_symbol()) sizes.try_emplace(wanted.sizes[d].symbol(), got.sizes[d]);
  }
  for (std::size_t k = 0; k < count; ++k)
    for (std::size_t d = 0; d < graph.inputs()[k].meta().sizes.size(); ++d)
      context.require_equal(graph.inputs()[k].meta().sizes[d].substitute(sizes),
                            context.meta(k + 1).sizes[d], "C2 operands");
  return sizes;
}

bool is_unbacked(const SymExpr& size) {
  std::vector<base::Symbol> symbols;
  size.collect_symbols(symbols);
  for (const base::Symbol& symbol : symbols)
    if (symbol.kind == base::Symbol::Kind::Unbacked) return true;
  return false;
}

Dims merged(const InferContext& context, const Dims& a, const Dims& b) {
  Dims sizes;
  for (std::size_t d = 0; d < a.size(); ++d)
    sizes.push_back(a[d] == b[d] && !is_unbacked(a[d]) ? a[d] : context.env.fresh_unbacked());
  return sizes;
}

Dims substituted(const Dims& dims, const base::SymbolExprs& sizes) {
  Dims result;
  for (const SymExpr& dim : dims) result.push_back(dim.substitute(sizes));
  return result;
}

std::vector<TensorMeta> infer_cond(const InferContext& context) {
  if (context.meta(0).dtype != boolean || context.meta(0).rank() != 0)
    context.fail_dtype("C1 predicate", "bool[]", context.meta(0).to_string());
  const Graph& yes = branch(context, "then");
  const Graph& no = branch(context, "else");
  const base::SymbolExprs yes_sizes = check_operands(context, yes);
  const base::SymbolExprs no_sizes = check_operands(context, no);
  if (yes.outputs().size() != no.outputs().size() || !yes.write_backs().empty() ||
      !no.write_backs().empty())
    context.fail_shape("C3 results", std::to_string(yes.outputs().size()),
                       std::to_string(no.outputs().size()));
  std::vector<TensorMeta> results;
  for (std::size_t k = 0; k < yes.outputs().size(); ++k) {
    const TensorMeta& a = yes.outputs()[k].meta();
    const TensorMeta& b = no.outputs()[k].meta();
    if (a.dtype != b.dtype || a.rank() != b.rank())
      context.fail_dtype("C3 results", a.to_string(), b.to_string());
    results.push_back(TensorMeta::of(
        a.dtype, merged(context, substituted(a.sizes, yes_sizes), substituted(b.sizes, no_sizes))));
  }
  return results;
}

std::vector<Literal> evaluate_cond(const EvalContext& context) {
  const bool chosen = context.inputs[0].at_int(0) != 0;
  return evaluate(context.node.graph(chosen ? "then" : "else"), context.inputs.subspan(1));
}

OpDef cond_op() {
  OpDef op;
  op.name = "cond";
  op.operands = {{"predicate", OperandSpec::Arity::One},
                 {"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"then", AttrKind::Graph, std::nullopt}, {"else", AttrKind::Graph, std::nullopt}};
  op.outputs = -1;
  op.infer = infer_cond;
  op.evaluate = evaluate_cond;
  return op;
}

}  // namespace

std::span<const OpDef> control_ops() {
  static const OpDef ops[] = {cond_op()};
  return ops;
}

}  // namespace heddle::ir
