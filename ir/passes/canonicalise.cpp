#include "ir/passes/canonicalise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/op.h"
#include "ir/passes/visible.h"

namespace heddle::ir {

namespace {

bool is_scalar(const Value& value, double wanted) {
  if (!value || value.node->op_name() != "const") return false;
  const Literal& literal = value.node->literal("value");
  return literal.count() == 1 && literal.at(0) == wanted;
}

bool commutes(std::string_view op) {
  constexpr std::array<std::string_view, 9> kOps{"add", "mul", "max", "min", "and",
                                                 "or",  "xor", "eq",  "ne"};
  return std::find(kOps.begin(), kOps.end(), op) != kOps.end();
}

/// Operand 0 if `node` leaves it as it is.
bool is_identity(const Node& node) {
  const std::string_view op = node.op_name();
  if (op == "mul" || op == "div") return is_scalar(node.input(1), 1);
  if (op == "sub")
    return is_scalar(node.input(1), 0) && !std::signbit(node.input(1).node->literal("value").at(0));
  return op == "add" && !is_floating(node.output().dtype) && is_scalar(node.input(1), 0);
}

/// What `node` reduces to, or a null value.
Value simplified(const Node& node, Rewriter& rewriter) {
  if (is_identity(node) && node.output().same_layout(node.input(0).meta()))
    return rewriter.map(node.input(0));
  if (node.op_name() == "neg" || node.op_name() == "not") {
    const Value inner = rewriter.map(node.input(0));
    if (inner.node->op_name() == node.op_name() && inner.node->after().empty())
      return inner.node->input(0);
  }
  return {};
}

}  // namespace

Graph canonicalise(const Graph& graph) {
  const std::set<StorageId> visible = visible_storages(graph);
  return rewrite(
      graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->outputs().size() != 1) return {};
        if (node->after().empty() && !visible.contains(node->output().storage)) {
          if (const Value value = simplified(*node, rewriter)) return std::vector<Value>{value};
        }
        const bool swap = commutes(node->op_name()) && node->input(0).node->op_name() == "const" &&
                          node->input(1).node->op_name() != "const";
        if (!swap) return {};
        rewriter.builder().context.name = node->name();
        const Value operands[] = {rewriter.map(node->input(1)), rewriter.map(node->input(0))};
        return std::vector<Value>{
            rewriter.builder().call(node->op(), operands, node->attrs())->value()};
      });
}

}  // namespace heddle::ir
