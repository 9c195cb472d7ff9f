#include "ir/passes/widen_permutes.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "ir/analysis/users.h"
#include "ir/op.h"
#include "ir/passes/layouts.h"
#include "ir/passes/visible.h"

namespace heddle::ir {

namespace {

/// For each of `few` dimensions the number of neighbouring ones of `many` that make it up; nothing where they do not.
std::optional<std::vector<std::size_t>> parts_of(const Dims& few, const Dims& many) {
  std::vector<std::size_t> parts;
  std::size_t next = 0;
  for (std::size_t d = 0; d < few.size(); ++d) {
    if (few[d].is_constant(0)) return {};
    SymExpr product = 1;
    const std::size_t first = next;
    do {
      if (next == many.size()) return {};
      product *= many[next++];
    } while (product != few[d]);
    const bool is_last = d + 1 == few.size();
    while (is_last && next < many.size() && many[next].is_constant(1)) ++next;
    parts.push_back(next - first);
  }
  return next == many.size() ? std::optional(std::move(parts)) : std::nullopt;
}

/// Where the parts of each dimension begin.
std::vector<std::size_t> begins_of(const std::vector<std::size_t>& parts) {
  std::vector<std::size_t> begins;
  std::size_t next = 0;
  for (const std::size_t count : parts) {
    begins.push_back(next);
    next += count;
  }
  return begins;
}

Value permuted(GraphBuilder& builder, Value x, Perm perm) {
  return builder.emit("permute", {x}, {{"perm", std::move(perm)}});
}
Value reshaped(GraphBuilder& builder, Value x, Dims sizes) {
  return builder.emit("reshape", {x}, {{"sizes", std::move(sizes)}});
}

/// reshape(permute(x)), which takes dimensions apart.
Value reshape_first(GraphBuilder& builder, const Node& permute, const Node& reshape) {
  const Dims& sizes = reshape.output().sizes;
  const auto parts = parts_of(permute.output().sizes, sizes);
  if (!parts || sizes.size() == parts->size()) return {};
  const Perm perm = perm_of(permute);
  const std::vector<std::size_t> begins = begins_of(*parts);
  Dims apart;
  std::vector<std::int64_t> place(sizes.size());  // of each dimension of the result
  for (std::int64_t axis = 0; axis < std::ssize(perm); ++axis) {
    const auto d = static_cast<std::size_t>(std::ranges::find(perm, axis) - perm.begin());
    for (std::size_t k = 0; k < (*parts)[d]; ++k) {
      place[begins[d] + k] = std::ssize(apart);
      apart.push_back(sizes[begins[d] + k]);
    }
  }
  return permuted(builder, reshaped(builder, permute.input(0), std::move(apart)), std::move(place));
}

/// The permute of x in permute(reshape(x)), which joins dimensions, that leaves a reshape alone.
Value permute_first(GraphBuilder& builder, const Node& reshape, const Node& permute) {
  const Value x = reshape.input(0);
  const auto parts = parts_of(reshape.output().sizes, x.meta().sizes);
  if (!parts || x.meta().sizes.size() == parts->size()) return {};
  const std::vector<std::size_t> begins = begins_of(*parts);
  Perm whole;
  for (const std::int64_t axis : perm_of(permute)) {
    const auto d = static_cast<std::size_t>(axis);
    for (std::size_t k = 0; k < (*parts)[d]; ++k)
      whole.push_back(static_cast<std::int64_t>(begins[d] + k));
  }
  return permuted(builder, x, std::move(whole));
}

class Widener {
 public:
  explicit Widener(const Graph& graph)
      : graph_(graph), visible_(visible_storages(graph)), pointwise_(find_op("convert")->reorder) {}

  std::optional<std::vector<Value>> visit(Rewriter& rewriter, const Node& node) {
    const bool splits = node.op_name() == "reshape";
    if ((!splits && node.op_name() != "permute") || !node.after().empty() ||
        visible_.contains(node.output().storage))
      return {};
    std::vector<const Node*> between;
    Value behind = node.input(0);
    for (; is_passed(behind, node); behind = behind.node->input(0)) between.push_back(behind.node);
    const Node& first = *rewriter.map(behind).node;
    if (first.op_name() != (splits ? "permute" : "reshape") ||
        first.annotations() != node.annotations() || !first.after().empty() ||
        first.output().sizes != behind.meta().sizes || !are_inner(between))
      return {};
    GraphBuilder& builder = rewriter.builder();
    builder.context.name = node.name();
    Value made = splits ? reshape_first(builder, first, node) : permute_first(builder, first, node);
    if (!made) return {};
    for (const Node* each : between | std::views::reverse) {
      std::vector<Value> operands = rewriter.map(each->inputs());
      operands[0] = made;
      made = builder.call(each->op(), operands, each->attrs())->value();
    }
    if (!splits) made = reshaped(builder, made, node.output().sizes);
    return std::vector<Value>{made};
  }

 private:
  /// Whether each of these is read by one node alone. Who reads what is asked for once there are such.
  bool are_inner(const std::vector<const Node*>& nodes) {
    if (nodes.empty()) return true;
    if (!users_) users_ = users_of(graph_);
    return std::ranges::all_of(nodes, [&](const Node* node) {
      return !users_->escapes(node->value()) && users_->of(node->value()).size() == 1;
    });
  }

  /// Whether `value` is made of one tensor, its first operand, and numbers.
  bool is_passed(Value value, const Node& reader) const {
    const Node& node = *value.node;
    if (node.op().reorder != pointwise_ || node.op_name() == "clone" || !node.after().empty() ||
        node.annotations() != reader.annotations() ||
        node.input(0).meta().sizes != value.meta().sizes)
      return false;
    return std::ranges::all_of(node.inputs().subspan(1), [](const Value& input) {
      return !input || (input.meta().count().is_constant(1) && input.meta().rank() <= 1);
    });
  }

  const Graph& graph_;
  const std::set<StorageId> visible_;
  std::optional<Users> users_;
  const ReorderFn pointwise_;
};

}  // namespace

Graph widen_permutes(const Graph& graph) {
  Widener widener(graph);
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) {
    return widener.visit(rewriter, *node);
  });
}

}  // namespace heddle::ir
