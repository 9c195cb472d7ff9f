// region: a compile unit. Calls its body on the operands.
//
//   operands  what the body takes, in order
//   body      graph; speaks of the sizes of the surrounding graph by their own symbols
//   results   those of the body
//
// Constraints.
//   C1  body takes the operands: count, dtypes and sizes; it has no parameters and writes nothing back
//
// Without results the call gives a token, u8[0], that order can name.
// Memory: as in the body; a result that shares the storage of an operand or of an earlier result there does so
// here. Made by the pass form-regions, taken apart by inline-regions.
#include <string>

#include "ir/analysis/regions.h"
#include "ir/evaluate.h"
#include "ir/known_sizes.h"
#include "ir/ops/families.h"
#include "ir/ops/regions.h"

namespace heddle::ir {
namespace {

const Graph& body_of(const Attrs& attrs) {
  return *std::get<GraphRef>(attrs.find("body")->second).graph;
}

std::vector<TensorMeta> infer_region(const InferContext& context) {
  const Graph& body = body_of(context.attrs);
  if (body.inputs().size() != context.inputs.size())
    context.fail_shape("C1 operands", std::to_string(body.inputs().size()),
                       std::to_string(context.inputs.size()));
  for (std::size_t k = 0; k < context.inputs.size(); ++k) {
    const TensorMeta& wanted = body.inputs()[k].meta();
    const TensorMeta& got = context.meta(k);
    if (body.inputs()[k].node->op_name() != "input" || wanted.dtype != got.dtype ||
        wanted.rank() != got.rank())
      context.fail_shape("C1 operands", seen(context.env, wanted).to_string(),
                         seen(context.env, got).to_string());
    for (std::size_t d = 0; d < wanted.sizes.size(); ++d)
      context.require_equal(wanted.sizes[d], got.sizes[d], "C1 operands");
  }
  if (!body.write_backs().empty()) context.fail_shape("C1 body", "no write-back", "one");
  std::vector<TensorMeta> results;
  for (const Value& output : body.outputs()) {
    results.push_back(output.meta());
    results.back().storage = 0;
  }
  return or_token(std::move(results));
}

Alias region_alias(const Node& node, std::uint32_t output) {
  const Graph& body = node.graph("body");
  if (body.outputs().empty()) return {};
  const StorageId storage = body.outputs()[output].meta().storage;
  for (std::size_t k = 0; k < body.inputs().size(); ++k)
    if (body.inputs()[k].meta().storage == storage) return {Alias::Kind::View, k};
  for (std::uint32_t k = 0; k < output; ++k)
    if (body.outputs()[k].meta().storage == storage) return {Alias::Kind::SharesResult, k};
  return {};
}

std::vector<Literal> evaluate_region(const EvalContext& context) {
  return ops::or_token(context,
                       evaluate(context.node.graph("body"), context.inputs, {}, context.sizes));
}

OpDef region_op() {
  OpDef op;
  op.name = "region";
  op.operands = {{"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"body", AttrKind::Graph, std::nullopt}};
  op.outputs = -1;
  op.infer = infer_region;
  op.alias = region_alias;
  op.evaluate = evaluate_region;
  return op;
}

}  // namespace

std::span<const OpDef> region_ops() {
  static const OpDef ops[] = {region_op()};
  return ops;
}

}  // namespace heddle::ir
