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
// Without results the call gives a token, u8[0], that order can name.
// Where the sizes of the two results differ, the result has a size known only at run time.
// Memory: the results are fresh. Only the chosen graph runs.
#include <string>

#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/known_sizes.h"
#include "ir/ops/regions.h"

namespace heddle::ir::ops {
namespace {

/// Whether both branches give this size: provably, or in the calls that the trace is for.
bool is_shared(const InferContext& context, const SymExpr& a, const SymExpr& b) {
  if (a == b) return true;
  if (is_unbacked(a) || is_unbacked(b)) return false;
  const base::Predicate same{base::Predicate::Op::Eq, a, b};
  return context.env.expect(same).value_or(false) &&
         context.env.require(same, "cond: sizes of the results", context.location);
}

/// One of the two graphs.
struct Branch {
  const Graph& graph;
  base::SymbolExprs sizes;  ///< its symbols in the surrounding graph
  std::set<base::Symbol> late;
};

/// Sizes of result k, with a new symbol where only the run tells.
Dims merged(const InferContext& context, const Branch& yes, const Branch& no, std::size_t k) {
  const Dims& own_yes = yes.graph.outputs()[k].meta().sizes;
  const Dims& own_no = no.graph.outputs()[k].meta().sizes;
  Dims sizes;
  for (std::size_t d = 0; d < own_yes.size(); ++d) {
    const SymExpr a = own_yes[d].substitute(yes.sizes);
    const SymExpr b = own_no[d].substitute(no.sizes);
    const bool late = mentions(own_yes[d], yes.late) || mentions(own_no[d], no.late);
    sizes.push_back(!late && is_shared(context, a, b) ? a : context.env.fresh_unbacked());
  }
  return sizes;
}

std::vector<TensorMeta> arguments_cond(std::span<const Value> inputs, const Attrs&) {
  return plain_arguments(inputs, 1);
}

std::vector<TensorMeta> infer_cond(const InferContext& context) {
  if (context.meta(0).dtype != boolean || context.meta(0).rank() != 0)
    context.fail_dtype("C1 predicate", "bool[]", seen(context.env, context.meta(0)).to_string());
  const Graph& yes = region(context, "then");
  const Graph& no = region(context, "else");
  const std::vector<TensorMeta> given = arguments_cond(context.inputs, context.attrs);
  const Branch then_branch{yes, check_region(context, yes, given, "C2 then"),
                           late_sizes(context, yes)};
  const Branch else_branch{no, check_region(context, no, given, "C2 else"),
                           late_sizes(context, no)};
  if (yes.outputs().size() != no.outputs().size())
    context.fail_shape("C3 results", std::to_string(yes.outputs().size()),
                       std::to_string(no.outputs().size()));
  std::vector<TensorMeta> results;
  for (std::size_t k = 0; k < yes.outputs().size(); ++k) {
    const TensorMeta a = region_result(yes, k, then_branch.sizes);
    const TensorMeta b = region_result(no, k, else_branch.sizes);
    if (a.dtype != b.dtype || a.rank() != b.rank())
      context.fail_dtype("C3 results", seen(context.env, a).to_string(),
                         seen(context.env, b).to_string());
    results.push_back(TensorMeta::of(a.dtype, merged(context, then_branch, else_branch, k)));
  }
  return or_token(std::move(results));
}

std::vector<Literal> evaluate_cond(const EvalContext& context) {
  const bool chosen = context.inputs[0].at_int(0) != 0;
  return or_token(context,
                  evaluate_region(context, chosen ? "then" : "else", context.inputs.subspan(1)));
}

}  // namespace

OpDef cond_op() {
  OpDef op;
  op.name = "cond";
  op.operands = {{"predicate", OperandSpec::Arity::One},
                 {"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"then", AttrKind::Graph, std::nullopt}, {"else", AttrKind::Graph, std::nullopt}};
  op.outputs = -1;
  op.infer = infer_cond;
  op.evaluate = evaluate_cond;
  op.region_arguments = arguments_cond;
  op.lowering.region = RegionKind::Cond;
  return op;
}

}  // namespace heddle::ir::ops
