#include "jit/lower/region.h"

#include "ir/analysis/regions.h"
#include "ir/op.h"

namespace heddle::jit {
namespace {

/// Numbers of unbacked symbols that stand for workspaces begin here: no graph has so many sizes.
constexpr std::uint32_t kFirstWorkspace = 1u << 31;

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

std::uint32_t count(const Node& node, std::string_view name) {
  return node.has(name) ? static_cast<std::uint32_t>(node.integer(name)) : 0;
}

}  // namespace

std::shared_ptr<const NestedCall> lower_regions(const Node& node, const LoweringState& state,
                                                std::uint32_t step) {
  auto call = std::make_shared<NestedCall>();
  call->kind = *node.op().lowering.region;
  const std::vector<ir::TensorMeta> arguments = ir::region_arguments(node);
  for (const std::string_view name : region_names(call->kind)) {
    const ir::Graph& graph = node.graph(name);
    const std::string& shown = std::get<ir::GraphRef>(node.attr(name)).name;
    call->regions.push_back(
        {shown.starts_with('@') ? shown.substr(1) : shown,
         std::make_shared<const Program>(lower_graph(graph, state.options(), state.checks)),
         ir::region_sizes(graph, arguments)});
  }
  call->operands = static_cast<std::uint32_t>(arguments.size());
  call->carried = count(node, "carried");
  call->scanned = count(node, "scanned");
  // A token is nothing that a nested graph gives.
  const auto& last = node.graph(region_names(call->kind).back());
  call->results = static_cast<std::uint32_t>(last.outputs().size());
  if (call->kind == ir::RegionKind::Scan)
    call->length =
        node.has("length") ? std::get<SymExpr>(node.attr("length")) : node.input(0).meta().sizes[0];
  call->reverse = node.has("reverse") && node.flag("reverse");
  call->workspace = {Symbol::Kind::Unbacked, kFirstWorkspace + step};
  return call;
}

}  // namespace heddle::jit
