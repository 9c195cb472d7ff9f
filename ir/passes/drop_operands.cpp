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
  const Graph& body = loop.graph("body");
  const bool is_scan = loop.op_name() == "scan";
  std::vector<std::unordered_set<const Node*>> live{live_nodes(body)};
  std::vector<const Graph*> graphs{&body};
  if (!is_scan) {
    graphs.push_back(&loop.graph("condition"));
    live.push_back(live_nodes(*graphs.back()));
  }
  const base::SymbolExprs sizes = region_sizes(body, region_arguments(loop));
  const std::size_t captured = first_captured(loop);
  const bool has_length = !is_scan || loop.attrs().contains("length");
  std::vector<std::size_t> unread;
  for (auto k = static_cast<std::size_t>(loop.integer("carried")); k < body.inputs().size(); ++k) {
    const bool is_count = is_scan && loop.flag("counted") && k == captured;
    const bool is_length = k < captured && !has_length;
    bool is_read = is_count || is_length;
    for (std::size_t g = 0; g < graphs.size(); ++g)
      is_read = is_read || live[g].contains(graphs[g]->inputs()[k].node);
    const bool plain = std::ranges::all_of(body.inputs()[k].meta().sizes, [&](const SymExpr& size) {
      return size.substitute(sizes) == size;
    });
    if (!is_read && plain) unread.push_back(k);
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
