// cond: one of two graphs, chosen at run time.
//
//   predicate  bool[]
//   operands   what both graphs take
//   then, else graphs
//   results    those of the chosen graph
//
// Constraints. infer() checks them in this order.
//   C1  predicate is one bool
//   C2  both graphs take the operands: count, dtypes, ranks and sizes; they have no parameters and write
//       nothing back
//   C3  both graphs give results of the same count, dtypes and ranks
//
// Where the sizes of the two results differ, the result has a size known only at run time.
// Memory: the results are fresh. Only the chosen graph runs.
#include <algorithm>
#include <string>

#include "ir/ops/regions.h"

namespace heddle::ir::ops {
namespace {

bool is_unbacked(const SymExpr& size) {
  std::vector<base::Symbol> symbols;
  size.collect_symbols(symbols);
  return std::any_of(symbols.begin(), symbols.end(), [](const base::Symbol& symbol) {
    return symbol.kind == base::Symbol::Kind::Unbacked;
  });
}

/// Whether both branches give this size: provably, or in the calls that the trace is for.
bool is_shared(const InferContext& context, const SymExpr& a, const SymExpr& b) {
  if (is_unbacked(a) || is_unbacked(b)) return false;
  const base::Predicate same{base::Predicate::Op::Eq, a, b};
  return a == b || (context.env.expect(same).value_or(false) &&
                    context.env.require(same, "cond: sizes of the results", context.location));
}

Dims merged(const InferContext& context, const Dims& a, const Dims& b) {
  Dims sizes;
  for (std::size_t d = 0; d < a.size(); ++d)
    sizes.push_back(is_shared(context, a[d], b[d]) ? a[d] : context.env.fresh_unbacked());
  return sizes;
}

std::vector<TensorMeta> arguments(std::span<const Value> inputs, const Attrs&) {
  return plain_arguments(inputs, 1);
}

std::vector<TensorMeta> infer(const InferContext& context) {
  if (context.meta(0).dtype != boolean || context.meta(0).rank() != 0)
    context.fail_dtype("C1 predicate", "bool[]", context.meta(0).to_string());
  const Graph& yes = region(context, "then");
  const Graph& no = region(context, "else");
  const std::vector<TensorMeta> given = arguments(context.inputs, context.attrs);
  const base::SymbolExprs yes_sizes = check_region(context, yes, given, "C2 then");
  const base::SymbolExprs no_sizes = check_region(context, no, given, "C2 else");
  if (yes.outputs().size() != no.outputs().size())
    context.fail_shape("C3 results", std::to_string(yes.outputs().size()),
                       std::to_string(no.outputs().size()));
  std::vector<TensorMeta> results;
  for (std::size_t k = 0; k < yes.outputs().size(); ++k) {
    const TensorMeta a = region_result(yes, k, yes_sizes);
    const TensorMeta b = region_result(no, k, no_sizes);
    if (a.dtype != b.dtype || a.rank() != b.rank())
      context.fail_dtype("C3 results", a.to_string(), b.to_string());
    results.push_back(TensorMeta::of(a.dtype, merged(context, a.sizes, b.sizes)));
  }
  return results;
}

std::vector<Literal> evaluate(const EvalContext& context) {
  const bool chosen = context.inputs[0].at_int(0) != 0;
  return evaluate_region(context, chosen ? "then" : "else", context.inputs.subspan(1));
}

}  // namespace

OpDef cond_op() {
  OpDef op;
  op.name = "cond";
  op.operands = {{"predicate", OperandSpec::Arity::One},
                 {"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"then", AttrKind::Graph, std::nullopt}, {"else", AttrKind::Graph, std::nullopt}};
  op.outputs = -1;
  op.infer = infer;
  op.evaluate = evaluate;
  op.region_arguments = arguments;
  op.lowering.region = RegionKind::Cond;
  return op;
}

}  // namespace heddle::ir::ops
