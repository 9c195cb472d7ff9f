// while_loop: runs a graph on its own results as long as another one says so.
//
//   operands   the first `carried` are where the loop starts, the others the same in each iteration
//   condition  graph of the operands: bool[], asked before each iteration
//   body       graph of the operands: the next carried values, then the elements of further results
//   results    the carried values when the condition said false, then for each other value of the body all its elements stacked in
//              the order of the iterations: [u, ...], where only the run tells u, how many there were
//
// Constraints. infer() checks them in this order.
//   C1  0 <= carried <= number of operands
//   C2  both graphs take the operands, have no parameters and write nothing back
//   C3  the condition gives one bool
//   C4  the body gives `carried` values of the dtypes and sizes that the loop starts with
//   C5  the other values of the body have the same sizes in each iteration
//
// Without results the call gives a token, u8[0], that order can name.
// Memory: the results are fresh.
// Source: StableHLO spec, "while"; ONNX Loop-13 for the stacked results.
#include <algorithm>
#include <optional>
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
  if (body.outputs().size() < count)
    context.fail_shape("C4 carried values", std::to_string(count),
                       std::to_string(body.outputs().size()));
  std::vector<TensorMeta> results = given;
  results.resize(count);
  std::optional<SymExpr> iterations;
  for (std::size_t k = 0; k < body.outputs().size(); ++k) {
    check_same_each_time(context, body, k, k < count ? "C4 carried value" : "C5 result");
    const TensorMeta result = region_result(body, k, sizes);
    if (k < count) {
      check_carried(context, given[k], result, k, "C4 the body keeps the shape of carried value");
      continue;
    }
    if (!iterations) iterations = context.env.fresh_unbacked();
    Dims stacked{*iterations};
    stacked.insert(stacked.end(), result.sizes.begin(), result.sizes.end());
    results.push_back(TensorMeta::of(result.dtype, std::move(stacked)));
  }
  return or_token(std::move(results));
}

/// Copies `element` behind those that `stack` has.
void append(std::vector<unsigned char>& stack, const Literal& element) {
  const Literal plain = element.contiguous();
  const auto* data = static_cast<const unsigned char*>(plain.data());
  stack.insert(stack.end(), data, data + plain.bytes());
}

std::vector<Literal> evaluate_while_loop(const EvalContext& context) {
  const auto count = static_cast<std::size_t>(context.node.integer("carried"));
  std::vector<Literal> values(context.inputs.begin(), context.inputs.end());
  std::vector<std::vector<unsigned char>> stacks(context.node.graph("body").outputs().size() -
                                                 count);
  std::int64_t iterations = 0;
  for (; evaluate_region(context, "condition", values)[0].at_int(0) != 0; ++iterations) {
    std::vector<Literal> next = evaluate_region(context, "body", values);
    for (std::size_t k = 0; k < stacks.size(); ++k) append(stacks[k], next[count + k]);
    for (std::size_t k = 0; k < count; ++k) values[k] = std::move(next[k]);
  }
  values.resize(count);
  for (std::size_t k = 0; k < stacks.size(); ++k) {
    Sizes sizes = context.concrete(
        std::span(context.node.output(static_cast<std::uint32_t>(count + k)).sizes).subspan(1));
    sizes.insert(sizes.begin(), iterations);
    Literal stacked(context.node.output(static_cast<std::uint32_t>(count + k)).dtype, sizes);
    std::copy(stacks[k].begin(), stacks[k].end(), static_cast<unsigned char*>(stacked.data()));
    values.push_back(std::move(stacked));
  }
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
