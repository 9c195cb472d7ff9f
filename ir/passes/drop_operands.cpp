#include "ir/passes/drop_operands.h"

#include <algorithm>
#include <vector>

#include "ir/analysis/regions.h"
#include "ir/passes/loop_graphs.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

/// Operands, by position, that no nested graph of the loop reads, and that no size needs.
std::vector<std::size_t> unread_operands(const Node& loop) {
  const bool is_scan = loop.op_name() == "scan";
  const std::vector<TensorMeta> arguments = region_arguments(loop);
  struct Nested {
    const Graph& graph;
    std::unordered_set<const Node*> live;
    base::SymbolExprs sizes;

    /// Whether it takes input `k`, or a size that has a name of its own there.
    bool needs(std::size_t k) const {
      const Value& input = graph.inputs()[k];
      return live.contains(input.node) ||
             std::ranges::any_of(input.meta().sizes, [&](const SymExpr& size) {
               return !(size.substitute(sizes) == size);
             });
    }
  };
  std::vector<Nested> graphs;
  for (const GraphRef* ref : regions_of(loop))
    graphs.push_back({*ref->graph, live_nodes(*ref->graph), region_sizes(*ref->graph, arguments)});
  const std::size_t captured = first_captured(loop);
  const bool has_length = !is_scan || loop.attrs().contains("length");
  std::vector<std::size_t> unread;
  for (auto k = static_cast<std::size_t>(loop.integer("carried")); k < arguments.size(); ++k) {
    const bool is_count = is_scan && loop.flag("counted") && k == captured;
    const bool is_length = k < captured && !has_length;
    if (!is_count && !is_length &&
        std::ranges::none_of(graphs, [&](const Nested& nested) { return nested.needs(k); }))
      unread.push_back(k);
  }
  return unread;
}

Graph without(const Graph& graph, const std::vector<std::size_t>& inputs) {
  const std::unordered_set<const Node*> live = live_nodes(graph);
  return with_inputs(
      graph,
      [&](GraphBuilder& builder) {
        Values dropped;
        for (const std::size_t k : inputs) dropped.push_back(builder.inputs()[k]);
        builder.drop_inputs(dropped);
      },
      &live);
}

}  // namespace

Graph drop_operands(const Graph& graph) {
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    if (!is_loop(*node)) return {};
    const std::vector<std::size_t> unread = unread_operands(*node);
    if (unread.empty()) return {};
    Attrs attrs = node->attrs();
    for (auto& [name, attr] : attrs)
      if (auto* ref = std::get_if<GraphRef>(&attr))
        ref->graph = std::make_shared<const Graph>(without(*ref->graph, unread));
    const std::size_t captured = first_captured(*node);
    const auto scanned = std::ranges::count_if(unread, [&](std::size_t k) { return k < captured; });
    if (node->op_name() == "scan")
      attrs.insert_or_assign("scanned", node->integer("scanned") - scanned);
    Values operands;
    for (std::size_t k = 0; k < node->inputs().size(); ++k)
      if (!std::ranges::binary_search(unread, k)) operands.push_back(rewriter.map(node->input(k)));
    const Node* made = rewriter.builder().call(node->op(), operands, std::move(attrs));
    Values results;
    for (std::uint32_t k = 0; k < made->outputs().size(); ++k) results.push_back(made->value(k));
    return results;
  });
}

}  // namespace heddle::ir
