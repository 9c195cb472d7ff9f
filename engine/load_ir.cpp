// Engines over graphs in IR text.

#include <chrono>

#include "engine/engine_impl.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "heddle/engine.h"
#include "heddle/frontend.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace heddle {

namespace {

/// Copies the nodes of `graph` into the trace, its inputs replaced by the trace's.
TraceResult replay(const ir::Graph& graph, const std::map<ir::Value, Tensor>& parameters,
                   std::span<const Tensor> inputs) {
  engine::Trace& trace = *engine::current_trace();
  ir::GraphBuilder& builder = trace.builder();
  std::map<ir::Value, ir::Value> values;
  std::size_t next = 0;
  for (const ir::Value input : graph.inputs()) {
    const auto parameter = parameters.find(input);
    values[input] = parameter != parameters.end()
                        ? trace.parameter(parameter->second, input.node->name())
                        : trace.value_of(inputs[next++], {});
  }
  for (const ir::NodePtr& node : graph.nodes()) {
    if (node->op_name() == "input" || node->op_name() == "param") continue;
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
  for (const auto& [target, source] : graph.write_backs())
    builder.write_back(values.at(target), values.at(source));
  TraceResult result;
  for (std::size_t k = 0; k < graph.outputs().size(); ++k) {
    result.tensors.push_back(trace.handle(values.at(graph.outputs()[k])));
    const std::string& label = graph.output_label(k);
    result.names.push_back(
        label.empty() ? graph.outputs()[k].node->names()[graph.outputs()[k].index] : label);
  }
  return result;
}

ValueInfo info_of(const std::string& label, ir::Value value) {
  ValueInfo info{label.empty() ? value.node->names()[value.index] : label, value.meta().dtype, {}};
  for (const ir::SymExpr& size : value.meta().sizes)
    info.sizes.push_back(engine::from_expr(size, nullptr));
  return info;
}

Engine engine_over(ir::Graph graph, EngineOptions options) {
  ir::verify(graph, ir::Stage::Traced);
  Signature signature;
  std::map<ir::Value, Tensor> parameters;
  std::vector<std::pair<std::string, Tensor>> names;
  for (std::size_t k = 0; k < graph.inputs().size(); ++k) {
    const ir::Value input = graph.inputs()[k];
    if (const ir::Literal* literal = graph.parameter(input.node)) {
      parameters[input] = engine::from_literal(*literal);
      names.emplace_back(input.node->name(), parameters[input]);
    } else {
      signature.inputs.push_back(info_of(graph.input_label(k), input));
    }
  }
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    signature.outputs.push_back(info_of(graph.output_label(k), graph.outputs()[k]));
  TraceFunction trace = [graph = std::move(graph),
                         parameters = std::move(parameters)](std::span<const Tensor> inputs) {
    return replay(graph, parameters, inputs);
  };
  Engine engine(Engine::FromTrace{}, std::move(trace), std::move(options), std::move(signature));
  for (const auto& [name, tensor] : names) detail::name_parameter(engine, name, tensor, false);
  return engine;
}

}  // namespace

Engine parse_ir(std::string_view text, EngineOptions options) {
  return engine_over(ir::parse(text), std::move(options));
}

Engine load_ir(const std::string& path, EngineOptions options) {
  return engine_over(ir::load(path), std::move(options));
}

}  // namespace heddle
