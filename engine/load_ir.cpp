// Engines over graphs in IR text.

#include "engine/engine_impl.h"
#include "engine/graph_replay.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "heddle/engine.h"
#include "heddle/frontend.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace heddle {

namespace {

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
      signature.inputs.back().donated = ir::is_donated(input);
    }
  }
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    signature.outputs.push_back(info_of(graph.output_label(k), graph.outputs()[k]));
  Engine engine(Engine::FromTrace{}, engine::GraphReplay(std::move(graph), std::move(parameters)),
                std::move(options), std::move(signature));
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
