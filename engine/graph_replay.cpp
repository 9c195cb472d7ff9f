#include "engine/graph_replay.h"

#include "engine/trace.h"

namespace heddle::engine {

GraphReplay::GraphReplay(ir::Graph graph, std::map<ir::Value, Tensor> parameters)
    : graph_(std::move(graph)), parameters_(std::move(parameters)) {
  for (std::size_t k = 0; k < graph_.inputs().size(); ++k)
    if (!parameters_.contains(graph_.inputs()[k]))
      arguments_.push_back({graph_.inputs()[k].node->name(), graph_.input_label(k)});
}

TraceResult GraphReplay::operator()(std::span<const Tensor> inputs) const {
  Trace& trace = *current_trace();
  ir::GraphBuilder& builder = trace.builder();
  std::map<ir::Value, ir::Value> values;
  std::size_t next = 0;
  for (const ir::Value input : graph_.inputs()) {
    const auto parameter = parameters_.find(input);
    values[input] = parameter != parameters_.end()
                        ? trace.parameter(parameter->second, input.node->name())
                        : trace.value_of(inputs[next++], {});
  }
  for (const ir::NodePtr& node : graph_.nodes()) {
    if (node->is_argument()) continue;
    std::vector<ir::Value> operands;
    for (const ir::Value& operand : node->inputs())
      operands.push_back(operand ? values.at(operand) : ir::Value{});
    builder.context = {node->annotations(), {}, node->location(), {}, {}};
    builder.context.names.assign(node->names().begin(), node->names().end());
    for (const ir::Value& first : node->after()) builder.context.after.push_back(values.at(first));
    const ir::Node* made = builder.call(node->op(), operands, node->attrs());
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      values[node->value(k)] = made->value(k);
  }
  builder.context = {};
  for (const auto& [target, source] : graph_.write_backs())
    if (!ir::is_donated(values.at(target)))  // whom the engine's options say so of
      builder.write_back(values.at(target), values.at(source));
  TraceResult result;
  for (std::size_t k = 0; k < graph_.outputs().size(); ++k) {
    const ir::Value output = graph_.outputs()[k];
    const std::string& label = graph_.output_label(k);
    result.tensors.push_back(trace.handle(values.at(output)));
    result.names.push_back(label.empty() ? output.node->names()[output.index] : label);
  }
  return result;
}

}  // namespace heddle::engine
