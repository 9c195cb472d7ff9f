#include "ir/passes/bf16_weights.h"

#include <map>

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

/// A constant or a parameter, seen through any views.
bool is_weight(const Value& value) {
  const Node* node = value.node;
  while (node->op().lowering.view != nullptr && node->inputs().size() == 1 && node->after().empty())
    node = node->input(0).node;
  return node->op_name() == "param" || node->op_name() == "const";
}

bool is_float_product(const Node& node) {
  if (node.op_name() != "matmul" || wants_fallback(node)) return false;
  const TensorMeta& right = node.input(1).meta();
  return node.input(0).meta().dtype == DType::F32 && right.dtype == DType::F32 &&
         right.rank() == 2 && is_weight(node.input(1));
}

}  // namespace

Graph bf16_weights(const Graph& graph) {
  std::map<Value, Value> rounded;
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    if (!is_float_product(*node)) return {};
    GraphBuilder& builder = rewriter.builder();
    Value& weights = rounded[node->input(1)];
    if (!weights) {
      const Value narrow =
          builder.emit("convert", {rewriter.map(node->input(1))}, {{"dtype", DType::BF16}});
      weights = builder.emit("convert", {narrow}, {{"dtype", DType::F32}});
    }
    return Values{builder.emit("matmul", {rewriter.map(node->input(0)), weights}, node->attrs())};
  });
}

}  // namespace heddle::ir
