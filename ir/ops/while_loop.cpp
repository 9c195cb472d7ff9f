// while_loop: runs a graph on its own results as long as another one says so.
//
//   operands   the first `carried` are where the loop starts, the others the same in each iteration
//   condition  graph of the operands: bool[], asked before each iteration
//   body       graph of the operands: the next carried values
//   results    the carried values when the condition said false
//
// Constraints. infer() checks them in this order.
//   C1  0 <= carried <= number of operands
//   C2  both graphs take the operands, have no parameters and write nothing back
//   C3  the condition gives one bool
//   C4  the body gives `carried` values of the dtypes and sizes that the loop starts with
//
// Without results the call gives a token, u8[0], that order can name.
// Memory: the results are fresh.
// Source: StableHLO spec, "while".
#include <string>

#include "ir/analysis/regions.h"
#include "ir/ops/regions.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> arguments_while_loop(std::span<const Value> inputs, const Attrs&) {
  return plain_arguments(inputs, 0);
}

std::vector<TensorMeta> infer_while_loop(const InferContext& context) {
  const std::int64_t carried = context.integer("carried");
  if (carried < 0 || carried > static_cast<std::int64_t>(context.inputs.size()))
    context.fail_shape("C1 carried", "at most the number of operands", std::to_string(carried));
  const Graph& condition = region(context, "condition");
  const Graph& body = region(context, "body");
  std::vector<TensorMeta> given = arguments_while_loop(context.inputs, context.attrs);
  check_region(context, condition, given, "C2 condition");
  const base::SymbolExprs sizes = check_region(context, body, given, "C2 body");
  if (condition.outputs().size() != 1 || condition.outputs()[0].meta().dtype != boolean ||
      condition.outputs()[0].meta().rank() != 0)
    context.fail_dtype("C3 condition", "one bool[]",
                       condition.outputs().size() != 1 ? std::to_string(condition.outputs().size())
                                                       : condition.outputs()[0].meta().to_string());
  const auto count = static_cast<std::size_t>(carried);
  if (body.outputs().size() != count)
    context.fail_shape("C4 carried values", std::to_string(count),
                       std::to_string(body.outputs().size()));
  for (std::size_t k = 0; k < count; ++k) {
    check_same_each_time(context, body, k, "C4 carried value");
    check_carried(context, given[k], region_result(body, k, sizes), k,
                  "C4 the body keeps the shape of carried value");
  }
  given.resize(count);
  return or_token(std::move(given));
}

std::vector<Literal> evaluate_while_loop(const EvalContext& context) {
  std::vector<Literal> values(context.inputs.begin(), context.inputs.end());
  while (evaluate_region(context, "condition", values)[0].at_int(0) != 0) {
    std::vector<Literal> next = evaluate_region(context, "body", values);
    for (std::size_t k = 0; k < next.size(); ++k) values[k] = std::move(next[k]);
  }
  values.resize(static_cast<std::size_t>(context.node.integer("carried")));
  return or_token(context, std::move(values));
}

}  // namespace

OpDef while_loop_op() {
  OpDef op;
  op.name = "while_loop";
  op.operands = {{"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"condition", AttrKind::Graph, std::nullopt},
              {"body", AttrKind::Graph, std::nullopt},
              {"carried", AttrKind::Int, std::nullopt}};
  op.outputs = -1;
  op.infer = infer_while_loop;
  op.evaluate = evaluate_while_loop;
  op.region_arguments = arguments_while_loop;
  op.lowering.region = RegionKind::While;
  return op;
}

}  // namespace heddle::ir::ops
