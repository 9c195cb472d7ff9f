#include "ir/analysis/aliases.h"

#include "ir/op.h"

namespace heddle::ir {

std::span<const Value> AliasSets::closure(const Value& value) const {
  const auto found = groups_.find(value.meta().storage);
  return found == groups_.end() ? std::span<const Value>() : std::span<const Value>(found->second);
}

bool AliasSets::is_input(const Value& value) const {
  return inputs_.contains(value.meta().storage);
}

bool AliasSets::is_output(const Value& value) const {
  return outputs_.contains(value.meta().storage);
}

AliasSets alias_sets(const Graph& graph) {
  AliasSets sets;
  for (const NodePtr& node : graph.nodes())
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      sets.groups_[node->output(k).storage].push_back(node->value(k));
  for (const Value& input : graph.inputs()) sets.inputs_[input.meta().storage] = true;
  for (const Value& output : graph.outputs()) sets.outputs_[output.meta().storage] = true;
  return sets;
}

Value viewed(const Value& value) {
  const Alias alias = alias_of(*value.node, value.index);
  return alias.kind == Alias::Kind::View ? value.node->input(alias.operand) : Value{};
}

Value whole_base(Value value) {
  for (;;) {
    if (!value.meta().is_row_major()) return {};
    const Alias alias = alias_of(*value.node, value.index);
    const bool overwritten = alias.kind == Alias::Kind::Mutates;
    if (alias.kind != Alias::Kind::View && !overwritten) return value;
    const std::string_view op = value.node->op_name();
    if (!overwritten && op != "reshape" && op != "alias") return {};
    value = value.node->input(alias.operand);
  }
}

}  // namespace heddle::ir
