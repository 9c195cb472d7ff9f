#include "ir/passes/remove_noops.h"

#include <algorithm>
#include <set>

#include "ir/op.h"

namespace heddle::ir {

namespace {

bool all_zero(const Dims& dims) {
  return std::all_of(dims.begin(), dims.end(), [](const SymExpr& d) { return d.is_constant(0); });
}

bool is_integer_one(const Value& value) {
  if (value.node->op_name() != "const" || is_floating(value.meta().dtype)) return false;
  const Literal& literal = value.node->literal("value");
  return literal.count() == 1 && literal.at_int(0) == 1;
}

/// Whether `node`, with a result laid out like operand 0, yields operand 0's elements in place.
bool keeps_elements(const Node& node) {
  const std::string_view op = node.op_name();
  if (op == "clone" || op == "alias" || op == "convert" || op == "reshape" || op == "expand")
    return true;
  if (op == "slice") return all_zero(node.symints("start"));
  if (op == "pad") return all_zero(node.symints("low")) && all_zero(node.symints("high"));
  if (op == "reverse") return node.ints("axes").empty();
  if (op == "concat") return node.inputs().size() == 1;
  if (op == "permute") return std::is_sorted(node.ints("perm").begin(), node.ints("perm").end());
  if (op == "pow") return is_integer_one(node.input(1));
  if (op == "ceil" || op == "floor" || op == "round" || op == "trunc")
    return !is_floating(node.output().dtype);
  return op.starts_with("reduce_") && node.ints("axes").empty();
}

/// Storages and values that the caller can see, kept up to date while nodes go.
class Visible {
 public:
  explicit Visible(const Graph& graph) {
    for (const Value& input : graph.inputs()) {
      inputs_.insert(input);
      input_storage_.insert(input.meta().storage);
    }
    for (const Value& output : graph.outputs()) {
      outputs_.insert(output);
      output_storage_.insert(output.meta().storage);
    }
    for (const Graph::WriteBack& write : graph.write_backs())
      output_storage_.insert(write.source.meta().storage);
  }

  /// Whether `node` may go, so that its users read `source` (both of the old graph).
  bool may_replace(const Value& node, const Value& source) const {
    if (node.meta().storage == source.meta().storage)
      return !outputs_.contains(node) || (!inputs_.contains(source) && !outputs_.contains(source));
    return !output_storage_.contains(node.meta().storage) ||
           (!input_storage_.contains(source.meta().storage) &&
            !output_storage_.contains(source.meta().storage));
  }

  void replaced(const Value& node, const Value& source) {
    if (outputs_.contains(node)) outputs_.insert(source);
    if (output_storage_.contains(node.meta().storage))
      output_storage_.insert(source.meta().storage);
  }

 private:
  std::set<Value> inputs_, outputs_;
  std::set<StorageId> input_storage_, output_storage_;
};

}  // namespace

Graph remove_noops(const Graph& graph) {
  Visible visible(graph);
  std::map<Value, Value> sources;  // where a removed node's elements come from, in the old graph
  return rewrite(graph,
                 [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
                   if (node->outputs().size() != 1 || node->inputs().empty() || !node->input(0))
                     return {};
                   if (!node->after().empty() || !keeps_elements(*node)) return {};
                   Value source = node->input(0);
                   if (!node->output().same_layout(source.meta())) return {};
                   if (const auto known = sources.find(source); known != sources.end())
                     source = known->second;
                   if (!visible.may_replace(node->value(), source)) return {};
                   visible.replaced(node->value(), source);
                   sources[node->value()] = source;
                   return std::vector<Value>{rewriter.map(node->input(0))};
                 });
}

}  // namespace heddle::ir
