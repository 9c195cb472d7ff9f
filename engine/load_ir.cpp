// Engines over graphs in IR text.

#include <fmt/format.h>
#include <set>

#include "engine/engine_impl.h"
#include "engine/graph_replay.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "heddle/engine.h"
#include "heddle/error.h"
#include "heddle/frontend.h"
#include "ir/analysis/unbacked.h"
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

/// The size symbols that the sizes of the inputs tell: s0 of [s0], and of [2*s0+1] too.
std::set<base::Symbol> told_by_inputs(const ir::Graph& graph) {
  std::set<base::Symbol> told;
  for (bool more = true; more;) {
    more = false;
    for (const ir::Value input : graph.inputs())
      for (const ir::SymExpr& size : input.meta().sizes) {
        std::vector<base::Symbol> symbols;
        size.collect_symbols(symbols);
        std::erase_if(symbols, [&](const base::Symbol& symbol) { return told.contains(symbol); });
        if (symbols.size() != 1) continue;
        const auto linear = size.linear_in(symbols[0]);
        if (linear && linear->coefficient.is_constant())
          more = told.insert(symbols[0]).second || more;
      }
  }
  return told;
}

void check_sizes_are_told(const ir::Graph& graph) {
  const std::set<base::Symbol> told = told_by_inputs(graph);
  for (const ir::NodePtr& node : graph.nodes())
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      for (const ir::SymExpr& size : node->value(k).meta().sizes) {
        std::vector<base::Symbol> symbols;
        size.collect_symbols(symbols);
        for (const base::Symbol& symbol : symbols)
          if (symbol.kind == base::Symbol::Kind::Size && !told.contains(symbol))
            throw ShapeError(
                {.what = fmt::format("%{}: size {}", node->names()[k], size.to_string()),
                 .where = node->location().to_string(),
                 .expected =
                     fmt::format("{} to follow from the sizes of the inputs", symbol.to_string()),
                 .got = node->value(k).meta().to_string()});
      }
}

/// Inputs lie where the engine runs: one that is declared to lie on CUDA is not for an engine elsewhere.
void check_devices(const ir::Graph& graph, const Device& device) {
  for (const ir::Value input : graph.inputs())
    if (input.meta().device.kind == ir::DeviceTag::Kind::Cuda && !device.is_cuda())
      throw DeviceError({.what = "input %" + input.node->name(),
                         .where = input.node->location().to_string(),
                         .expected = "the engine's device, " + device.to_string(),
                         .got = input.meta().to_string()});
}

/// Sizes that only a run tells are those of results.
void check_input_sizes(const ir::Graph& graph) {
  for (const ir::Value input : graph.inputs())
    for (const ir::SymExpr& size : input.meta().sizes)
      if (ir::is_unbacked(size))
        throw ShapeError({.what = fmt::format("%{}: size {}", input.node->name(), size.to_string()),
                          .where = input.node->location().to_string(),
                          .expected = "a number or a size of the inputs, such as s0",
                          .got = input.meta().to_string()});
}

Engine engine_over(ir::Graph graph, EngineOptions options) {
  ir::verify(graph, ir::Stage::Traced);
  check_devices(graph, options.device);
  check_input_sizes(graph);
  check_sizes_are_told(graph);
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
