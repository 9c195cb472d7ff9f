#include "jit/lower/region.h"

#include <algorithm>

#include "ir/analysis/regions.h"
#include "ir/nested_graphs.h"
#include "ir/op.h"
#include "jit/lower/loop_body.h"

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

/// @param condition  of a while loop; null: of a scan
const LoweredBody& body_of(const ir::GraphRef& ref, const ir::Graph* condition,
                           std::uint32_t carried, const LoweringState& state) {
  LoweredBody& body = state.shared.bodies[{ref.graph, condition, carried}];
  if (body.program != nullptr) return body;
  BodyInPlace in_place = body_in_place(*ref.graph, condition, carried);
  body.program = in_place.graph.identical(*ref.graph)
                     ? program_of(ref, state)
                     : std::make_shared<const Program>(
                           lower_graph(in_place.graph, state.options(), state.shared));
  body.updated = std::move(in_place.updated);
  body.appended = std::move(in_place.appended);
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
    NestedCall::Region region{
        ir::graph_name(ref.name), ref.graph, {}, nullptr, ir::region_sizes(*ref.graph, arguments)};
    for (const Value& input : ref.graph->inputs()) region.inputs.push_back(input.meta());
    if (name == "body" && call->carried != 0) {
      const ir::Graph* condition =
          call->kind == ir::RegionKind::While ? &node.graph("condition") : nullptr;
      const LoweredBody& body = body_of(ref, condition, call->carried, state);
      region.program = body.program;
      std::uint32_t next = 0;
      for (std::size_t k = 0; k < ref.graph->outputs().size(); ++k)
        call->outputs.push_back(k < call->carried && body.updated[k] ? ir::kNone : next++);
      call->appended = body.appended;
      for (const NestedCall::Appended& appended : call->appended)
        region.sizes[appended.room] = appended.next.substitute(region.sizes);
    } else {
      region.program = program_of(ref, state);
    }
    call->regions.push_back(std::move(region));
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
