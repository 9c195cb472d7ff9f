#include "ir/passes/push_permutes.h"

#include "ir/op.h"
#include "ir/passes/layouts.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

Dims in_order(std::span<const SymExpr> sizes, const Perm& perm) {
  Dims result;
  for (const std::int64_t axis : perm) result.push_back(sizes[static_cast<std::size_t>(axis)]);
  return result;
}

class Pusher {
 public:
  explicit Pusher(const Graph& graph) : layouts_(graph) {}

  bool has_work() const { return layouts_.any_changed(); }

  std::optional<Values> visit(Rewriter& rewriter, const NodePtr& node) {
    if (layouts_.is_member(node.get())) return reordered(rewriter, node);
    if (node->op_name() != "permute" || !node->after().empty()) return {};
    if (layouts_.is_visible(node->value())) return {};
    return passed_over(rewriter, *node);
  }

 private:
  /// `value` with its dimensions in the order `wanted`, in the new graph.
  Value read(Rewriter& rewriter, Value value, const Perm& wanted, const Node& reader) const {
    const Source source = layouts_.source_of(value, reader);
    return permuted(rewriter, memory_of(rewriter, source.root), layouts_.needed(source, wanted));
  }

  /// The new value of a root, in the order that it lies in.
  Value memory_of(Rewriter& rewriter, Value root) const {
    const auto found = memory_.find(root);
    return found == memory_.end() ? rewriter.map(root) : found->second;
  }

  static Value permuted(Rewriter& rewriter, Value value, const Perm& perm) {
    if (is_identity(perm)) return value;
    const Dims& sizes = value.meta().sizes;
    if (moves_nothing(sizes, perm))
      return rewriter.builder().emit("reshape", {value}, {{"sizes", in_order(sizes, perm)}});
    return rewriter.builder().emit("permute", {value}, {{"perm", perm}});
  }

  /// An operand that broadcasts against trailing dimensions.
  static Value widened(Rewriter& rewriter, Value value, const Perm& order) {
    if (value.meta().rank() == 0) return value;
    Dims sizes(order.size() - value.meta().sizes.size(), SymExpr(1));
    sizes.insert(sizes.end(), value.meta().sizes.begin(), value.meta().sizes.end());
    if (moves_nothing(sizes, order))
      return rewriter.builder().emit("reshape", {value}, {{"sizes", in_order(sizes, order)}});
    const Value wide = rewriter.builder().emit("reshape", {value}, {{"sizes", sizes}});
    return permuted(rewriter, wide, order);
  }

  std::optional<Values> reordered(Rewriter& rewriter, const NodePtr& node) {
    const Perm order = layouts_.order_of(node.get());
    Values operands;
    for (const Value& input : node->inputs()) {
      const bool full = input && input.meta().rank() == static_cast<std::int64_t>(order.size());
      if (full)
        operands.push_back(read(rewriter, input, order, *node));
      else if (input && !is_identity(order))
        operands.push_back(widened(rewriter, rewriter.map(input), order));
      else
        operands.push_back(rewriter.map(input));
    }
    if (is_identity(order) && operands == rewriter.map(node->inputs())) return {};
    Reordered call = *node->op().reorder(*node, order);
    const Value made =
        rewriter.builder().call(node->op(), operands, std::move(call.attrs))->value();
    if (is_identity(call.result)) return Values{made};
    memory_[node->value()] = made;
    if (!layouts_.is_read_as_it_is(node->value())) return Values{made};
    const Value own = permuted(rewriter, made, inverse(call.result));
    if (!layouts_.is_visible(node->value()) || own.meta().is_row_major()) return Values{own};
    return Values{rewriter.builder().emit("clone", {own})};
  }

  std::optional<Values> passed_over(Rewriter& rewriter, const Node& node) const {
    const Source source = layouts_.source_of(node.value(), node);
    const Perm own = identity_perm(node.output().rank());
    const Perm perm = layouts_.needed(source, own);
    const Value root = memory_of(rewriter, source.root);
    if (source.root == node.input(0) && !memory_.contains(source.root)) return {};
    return Values{permuted(rewriter, root, perm)};
  }

  const Layouts layouts_;
  std::map<Value, Value> memory_;  ///< values in another order: where they lie in the new graph
};

}  // namespace

Graph push_permutes(const Graph& graph) {
  Pusher pusher(graph);
  if (!pusher.has_work()) return graph;
  return rewrite(
      graph, [&](Rewriter& rewriter, const NodePtr& node) { return pusher.visit(rewriter, node); });
}

}  // namespace heddle::ir
