#include "ir/passes/merge_views.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/passes/visible.h"

namespace heddle::ir {

namespace {

Attrs merged_permute(const Node& first, const Node& second) {
  std::vector<std::int64_t> perm;
  const auto& inner = first.ints("perm");
  for (const std::int64_t axis : second.ints("perm"))
    perm.push_back(inner[static_cast<std::size_t>(
        axis < 0 ? axis + static_cast<std::int64_t>(inner.size()) : axis)]);
  return {{"perm", std::move(perm)}};
}

/// One dimension of a slice.
struct Window {
  SymExpr start, limit, stride;
};

Window window_of(const Node& slice, std::size_t d) {
  return {slice.symints("start")[d], slice.symints("limit")[d], slice.symints("stride")[d]};
}

bool takes_all(const Window& window, const SymExpr& size) {
  return window.start.is_constant(0) && window.limit == size && window.stride.is_constant(1);
}

/// `second` after `first`, with a result of `count` elements: element k of the second is element
/// start2 + k*stride2 of the first, so start1 + that * stride1 of the operand; the limit is one past the
/// last element taken. Where none is, start and limit are those of the first. Nothing for symbolic
/// windows: the size of the result would be another expression.
std::optional<Window> merged(const Window& first, const Window& second, const SymExpr& count) {
  for (const SymExpr& number : {first.start, first.stride, second.start, second.stride, count})
    if (!number.is_constant()) return {};
  Window window{first.start + second.start * first.stride, 0, first.stride * second.stride};
  if (count.is_constant(0)) window.start = first.start;
  window.limit =
      count.is_constant(0) ? window.start : window.start + (count - 1) * window.stride + 1;
  return window;
}

std::optional<Attrs> merged_slice(const Node& first, const Node& second) {
  Dims start, limit, stride;
  for (std::size_t d = 0; d < second.output().sizes.size(); ++d) {
    const Window inner = window_of(first, d);
    const Window outer = window_of(second, d);
    std::optional<Window> window = inner;
    if (takes_all(inner, first.input(0).meta().sizes[d]))
      window = outer;
    else if (!takes_all(outer, first.output().sizes[d]))
      window = merged(inner, outer, second.output().sizes[d]);
    if (!window) return {};
    start.push_back(window->start);
    limit.push_back(window->limit);
    stride.push_back(window->stride);
  }
  return Attrs{
      {"start", std::move(start)}, {"limit", std::move(limit)}, {"stride", std::move(stride)}};
}

std::optional<Attrs> merged_attrs(const Node& first, const Node& second) {
  if (second.op_name() == "permute") return merged_permute(first, second);
  if (second.op_name() == "slice") return merged_slice(first, second);
  return second.attrs();
}

bool same_kind_of_view(const Node& first, const Node& second) {
  const std::string_view op = second.op_name();
  return op == first.op_name() && first.annotations() == second.annotations() &&
         (op == "reshape" || op == "permute" || op == "expand" || op == "slice");
}

/// A view that does the work of two waits for what either waited for.
void wait_for(std::vector<Value>& after, std::span<const Value> more) {
  for (const Value& value : more)
    if (std::ranges::find(after, value) == after.end()) after.push_back(value);
}

}  // namespace

Graph merge_views(const Graph& graph) {
  const std::set<StorageId> visible = visible_storages(graph);
  return rewrite(
      graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->inputs().empty() || !node->input(0)) return {};
        const Value operand = rewriter.map(node->input(0));
        if (!same_kind_of_view(*operand.node, *node)) return {};
        const Node& first = *operand.node;
        const bool copies = first.output().storage != first.input(0).meta().storage;
        if (copies && visible.contains(node->output().storage)) return {};
        std::optional<Attrs> attrs = merged_attrs(first, *node);
        if (!attrs) return {};
        rewriter.builder().context.name = node->name();
        wait_for(rewriter.builder().context.after, first.after());
        const Node* merged =
            rewriter.builder().call(node->op(), {&first.inputs()[0], 1}, std::move(*attrs));
        return std::vector<Value>{merged->value()};
      });
}

}  // namespace heddle::ir
