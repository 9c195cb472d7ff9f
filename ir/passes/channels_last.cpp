#include "ir/passes/channels_last.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/passes/layouts.h"
#include "ir/passes/transposed_conv.h"
#include "ir/passes/transposed_phases.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

/// Of f32, or of integers, which quantised models have.
bool is_conv(const Node& node) {
  const DType dtype = node.output().dtype;
  return node.op_name() == "conv" && !node.flag("channels_last") &&
         (dtype == DType::F32 || dtype == DType::I32);
}

/// [N, C, in...] to [N, in..., C].
Perm to_the_end(std::int64_t rank) {
  Perm perm{0};
  for (std::int64_t axis = 2; axis < rank; ++axis) perm.push_back(axis);
  perm.push_back(1);
  return perm;
}

}  // namespace

Graph channels_last(const Graph& graph) {
  std::map<Value, Value> permuted;  // by value of the new graph
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    const bool transposed = is_transposed_conv(*node);
    if (!transposed && !is_conv(*node)) return {};
    const Perm perm = to_the_end(node->output().rank());
    Values operands = rewriter.map(node->inputs());
    Value& x = permuted[operands[0]];
    if (!x) x = rewriter.builder().emit("permute", {operands[0]}, {{"perm", perm}});
    if (transposed) {
      const std::optional<Value> phases = as_phases(rewriter.builder(), *node, x, operands);
      const Value made = phases ? *phases : as_convolution(rewriter.builder(), *node, x, operands);
      return Values{rewriter.builder().emit("permute", {made}, {{"perm", inverse(perm)}})};
    }
    operands[0] = x;
    Attrs attrs = node->attrs();
    attrs["channels_last"] = true;
    const Value made = rewriter.builder().call(node->op(), operands, std::move(attrs))->value();
    return Values{rewriter.builder().emit("permute", {made}, {{"perm", inverse(perm)}})};
  });
}

}  // namespace heddle::ir
