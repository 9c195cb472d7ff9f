#include "jit/lower/region.h"

#include <algorithm>

#include "ir/analysis/aliases.h"
#include "ir/analysis/regions.h"
#include "ir/environment.h"
#include "ir/nested_graphs.h"
#include "ir/op.h"
#include "ir/passes/reinplace.h"

namespace heddle::jit {
namespace {

/// Numbers of unbacked symbols that stand for workspaces begin here, those of engine/cuda_unit.cpp too: no graph has so
/// many sizes.
constexpr std::uint32_t kFirstWorkspace = 1u << 31;

std::uint32_t count(const Node& node, std::string_view name) {
  return node.has(name) ? static_cast<std::uint32_t>(node.integer(name)) : 0;
}

std::shared_ptr<const Program> program_of(const ir::GraphRef& ref, const LoweringState& state) {
  const auto known = state.shared.programs.find(ref.graph);
  if (known != state.shared.programs.end()) return known->second;
  auto program =
      std::make_shared<const Program>(lower_graph(*ref.graph, state.options(), state.shared));
  return state.shared.programs[ref.graph] = std::move(program);
}

/// The carried values that the body's results are made of by overwriting a part of them: operands of ops that may do so.
std::vector<bool> updated_values(const ir::Graph& body, std::uint32_t carried) {
  const auto updates = [&](std::uint32_t k) {
    ir::Value value = ir::whole_base(body.outputs()[k]);
    for (bool overwritten = false; value;) {
      if (value == body.inputs()[k]) return overwritten;
      const ir::InPlace* pair = nullptr;
      for (const ir::InPlace& each : value.node->op().in_place)
        if (each.output == value.index) pair = &each;
      if (pair == nullptr) return false;
      overwritten = true;
      value = ir::whole_base(value.node->input(pair->operand));
    }
    return false;
  };
  std::vector<bool> updated(carried);
  for (std::uint32_t k = 0; k < carried; ++k) updated[k] = updates(k);
  return updated;
}

/// `body` with the values in `updated` written back to what it was given for them, in place of results.
ir::Graph with_updates(const ir::Graph& body, const std::vector<bool>& updated) {
  ir::GraphBuilder builder(body.name(), ir::environment_of(body));
  builder.adopt(body);
  for (const ir::NodePtr& node : body.nodes()) builder.share(node);
  for (std::size_t k = 0; k < body.outputs().size(); ++k) {
    if (k < updated.size() && updated[k])
      builder.write_back(body.inputs()[k], body.outputs()[k]);
    else
      builder.output(body.outputs()[k], body.output_label(k));
  }
  return ir::reinplace(builder.finish());
}

/// A body whose carried values are overwritten where that saves a copy of them: where a write-back is left it does not.
const LoweredBody& body_of(const ir::GraphRef& ref, std::uint32_t carried,
                           const LoweringState& state) {
  LoweredBody& body = state.shared.bodies[{ref.graph, carried}];
  if (body.program != nullptr) return body;
  body.updated = updated_values(*ref.graph, carried);
  ir::Graph graph = *ref.graph;
  while (std::ranges::count(body.updated, true) != 0) {
    graph = with_updates(*ref.graph, body.updated);
    if (graph.write_backs().empty()) break;
    for (std::uint32_t k = 0; k < carried; ++k)
      if (std::ranges::count(graph.write_backs(), ref.graph->inputs()[k],
                             &ir::Graph::WriteBack::target) != 0)
        body.updated[k] = false;
    graph = *ref.graph;
  }
  body.program =
      std::ranges::count(body.updated, true) == 0
          ? program_of(ref, state)
          : std::make_shared<const Program>(lower_graph(graph, state.options(), state.shared));
  return body;
}

/// Each once, where the body first has it.
std::vector<NestedCall::ChangingSize> changing_sizes(const NestedCall& loop) {
  const ir::Graph& condition = *loop.regions[0].graph;
  const ir::Graph& body = *loop.regions[1].graph;
  std::vector<NestedCall::ChangingSize> changing;
  for (const auto& [symbol, next] : ir::changing_sizes(body, loop.carried)) {
    const ir::SymExpr size(symbol);
    for (std::uint32_t k = 0; k < loop.carried; ++k) {
      const ir::Dims& sizes = body.inputs()[k].meta().sizes;
      const auto d = std::ranges::find(sizes, size) - sizes.begin();
      if (d == std::ssize(sizes)) continue;
      const ir::SymExpr& asked = condition.inputs()[k].meta().sizes[static_cast<std::size_t>(d)];
      changing.push_back({k, static_cast<std::uint32_t>(d), {asked.symbol(), symbol}});
      break;
    }
  }
  return changing;
}

}  // namespace

bool is_workspace(const Symbol& symbol) {
  return symbol.kind == Symbol::Kind::Unbacked && symbol.id >= kFirstWorkspace;
}

std::vector<std::string_view> region_names(ir::RegionKind kind) {
  switch (kind) {
    case ir::RegionKind::Cond:
      return {"then", "else"};
    case ir::RegionKind::While:
      return {"condition", "body"};
    case ir::RegionKind::Once:
    case ir::RegionKind::Scan:
      break;
  }
  return {"body"};
}

std::shared_ptr<const NestedCall> lower_regions(const Node& node, const LoweringState& state,
                                                std::uint32_t step) {
  auto call = std::make_shared<NestedCall>();
  call->kind = *node.op().lowering.region;
  const std::vector<ir::TensorMeta> arguments = ir::region_arguments(node);
  call->carried = count(node, "carried");
  for (const std::string_view name : region_names(call->kind)) {
    const auto& ref = std::get<ir::GraphRef>(node.attr(name));
    std::shared_ptr<const Program> program;
    if (name == "body" && call->carried != 0) {
      const LoweredBody& body = body_of(ref, call->carried, state);
      program = body.program;
      call->updated = body.updated;
    } else {
      program = program_of(ref, state);
    }
    call->regions.push_back({ir::graph_name(ref.name), ref.graph, std::move(program),
                             ir::region_sizes(*ref.graph, arguments)});
  }
  call->operands = static_cast<std::uint32_t>(arguments.size());
  call->scanned = count(node, "scanned");
  // A token is nothing that a nested graph gives.
  const auto& last = node.graph(region_names(call->kind).back());
  call->results = static_cast<std::uint32_t>(last.outputs().size());
  if (call->kind == ir::RegionKind::Scan)
    call->length =
        node.has("length") ? std::get<SymExpr>(node.attr("length")) : node.input(0).meta().sizes[0];
  call->reverse = node.has("reverse") && node.flag("reverse");
  call->counted = node.has("counted") && node.flag("counted");
  if (call->kind == ir::RegionKind::While) call->changing = changing_sizes(*call);
  call->workspace = {Symbol::Kind::Unbacked, kFirstWorkspace + step};
  return call;
}

}  // namespace heddle::jit
