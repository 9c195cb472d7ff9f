#include "ir/analysis/regions.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/check.h"
#include "ir/analysis/unbacked.h"
#include "ir/op.h"

namespace heddle::ir {

std::vector<const GraphRef*> regions_of(const Node& node) {
  std::vector<const GraphRef*> regions;
  for (const auto& [name, attr] : node.attrs())
    if (const auto* ref = std::get_if<GraphRef>(&attr)) regions.push_back(ref);
  return regions;
}

TensorMeta token_type() { return TensorMeta::of(u8, {0}); }

bool gives_token(const Node& node) {
  return node.op().outputs < 0 && node.outputs().size() == 1 && node.output().dtype == u8 &&
         node.output().rank() == 1 && node.output().sizes[0].is_constant(0);
}

std::vector<TensorMeta> or_token(std::vector<TensorMeta> results) {
  if (results.empty()) results.push_back(token_type());
  return results;
}

namespace {

using Pure =
    std::unordered_set<const Graph*>;  ///< graphs that were found pure, or are being looked at

bool is_pure(const Graph& graph, Pure& seen);

bool is_pure(const Node& node, Pure& seen) {
  if (!node.op().pure) return false;
  const auto regions = regions_of(node);
  return std::ranges::all_of(regions,
                             [&](const GraphRef* ref) { return is_pure(*ref->graph, seen); });
}

bool is_pure(const Graph& graph, Pure& seen) {
  if (!seen.insert(&graph).second) return true;
  return std::ranges::all_of(graph.nodes(), [&](const NodePtr& node) {
    return node->is_argument() || is_pure(*node, seen);
  });
}

}  // namespace

bool is_pure(const Node& node) {
  Pure seen;
  return is_pure(node, seen);
}

bool is_pure(const Graph& graph) {
  Pure seen;
  return is_pure(graph, seen);
}

base::SymbolExprs region_sizes(const Graph& region, std::span<const TensorMeta> arguments) {
  base::SymbolExprs sizes;
  for (std::size_t k = 0; k < arguments.size() && k < region.inputs().size(); ++k) {
    const Dims& wanted = region.inputs()[k].meta().sizes;
    for (std::size_t d = 0; d < wanted.size() && d < arguments[k].sizes.size(); ++d)
      if (wanted[d].is_symbol()) sizes.try_emplace(wanted[d].symbol(), arguments[k].sizes[d]);
  }
  return sizes;
}

base::SymbolExprs changing_sizes(const Graph& body, std::size_t carried) {
  base::SymbolExprs changing;
  for (std::size_t k = 0; k < carried; ++k) {
    const Dims& now = body.inputs()[k].meta().sizes;
    const Dims& next = body.outputs()[k].meta().sizes;
    for (std::size_t d = 0; d < now.size() && d < next.size(); ++d)
      if (now[d].is_symbol() && is_unbacked(now[d]) && now[d] != next[d])
        changing.try_emplace(now[d].symbol(), next[d]);
  }
  return changing;
}

std::vector<TensorMeta> region_arguments(const Node& node) {
  HD_CHECK(node.op().region_arguments != nullptr, std::string(node.op_name()));
  return node.op().region_arguments(node.inputs(), node.attrs());
}

namespace {

using Changed = std::map<const Graph*, std::shared_ptr<const Graph>>;

/// Notes in `known` what becomes of the graphs nested in `graph`. @return whether that of any node is another.
bool change_nested(const Graph& graph, Graph (*change)(const Graph&), Changed& known);

Graph changed_regions(const Graph& graph, Graph (*change)(const Graph&), Changed& known) {
  if (!change_nested(graph, change, known)) return graph;
  return rewrite(
      graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
        if (!node->op().lowering.region) return {};
        Attrs attrs = node->attrs();
        bool any = false;
        for (auto& [name, attr] : attrs) {
          auto* ref = std::get_if<GraphRef>(&attr);
          if (ref == nullptr) continue;
          const std::shared_ptr<const Graph>& made = known.at(ref->graph.get());
          any = any || made != ref->graph;
          ref->graph = made;
        }
        if (!any) return {};
        rewriter.builder().context.names.assign(node->names().begin(), node->names().end());
        const Node* call =
            rewriter.builder().call(node->op(), rewriter.map(node->inputs()), std::move(attrs));
        std::vector<Value> values;
        for (std::uint32_t k = 0; k < call->outputs().size(); ++k) values.push_back(call->value(k));
        return values;
      });
}

bool change_nested(const Graph& graph, Graph (*change)(const Graph&), Changed& known) {
  bool any = false;
  for (const NodePtr& node : graph.nodes()) {
    if (!node->op().lowering.region) continue;
    for (const auto& [name, attr] : node->attrs()) {
      const auto* ref = std::get_if<GraphRef>(&attr);
      if (ref == nullptr) continue;
      std::shared_ptr<const Graph>& made = known[ref->graph.get()];
      if (made == nullptr) {
        const Graph next = change(changed_regions(*ref->graph, change, known));
        made = next.identical(*ref->graph) ? ref->graph : std::make_shared<const Graph>(next);
      }
      any = any || made != ref->graph;
    }
  }
  return any;
}

}  // namespace

Graph change_regions(const Graph& graph, Graph (*change)(const Graph&)) {
  Changed known;
  return changed_regions(graph, change, known);
}

}  // namespace heddle::ir
