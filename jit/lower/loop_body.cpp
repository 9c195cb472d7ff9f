#include "jit/lower/loop_body.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ir/analysis/aliases.h"
#include "ir/analysis/unbacked.h"
#include "ir/environment.h"
#include "ir/op.h"
#include "ir/passes/reinplace.h"

namespace heddle::jit {

namespace {

using ir::Dims;
using ir::Node;
using ir::NodePtr;
using ir::SymExpr;
using ir::Value;

/// Whether result `k` is carried value `k` with parts of it overwritten by ops that may do so.
bool is_overwritten(const ir::Graph& body, std::uint32_t k) {
  Value value = ir::whole_base(body.outputs()[k]);
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
}

bool is_read(const ir::Graph& graph, const Value& input) {
  return std::ranges::count(graph.outputs(), input) != 0 ||
         std::ranges::any_of(graph.nodes(), [&](const NodePtr& node) {
           return std::ranges::count(node->inputs(), input) != 0;
         });
}

class Builder {
 public:
  Builder(const ir::Graph& body, const BodyInPlace& wanted)
      : body_(body), wanted_(wanted), env_(ir::environment_of(body)), builder_(body.name(), env_) {}

  ir::Graph make() {
    builder_.adopt(body_);
    give_room();
    for (const NodePtr& node : body_.nodes())
      if (!values_.contains(node->value())) visit(node);
    for (std::size_t k = 0; k < body_.outputs().size(); ++k) {
      if (k >= wanted_.updated.size() || !wanted_.updated[k])
        builder_.output(map(body_.outputs()[k]), body_.output_label(k));
      else if (appended(body_.outputs()[k].node) == nullptr)
        builder_.write_back(map(body_.inputs()[k]), map(body_.outputs()[k]));
    }
    for (const auto& [room, all] : written_) builder_.write_back(room, all);
    return builder_.finish();
  }

 private:
  using Appended = NestedCall::Appended;

  Value map(Value value) const { return value ? values_.at(value) : value; }

  const Appended* appended(const Node* concat) const {
    const auto found = std::ranges::find_if(wanted_.appended, [&](const Appended& each) {
      return body_.outputs()[each.carried].node == concat;
    });
    return found == wanted_.appended.end() ? nullptr : &*found;
  }

  /// The first elements of what has room for more.
  Value beginning_of(const Value& room, Dims sizes) {
    const Dims zeros(sizes.size(), SymExpr(0));
    const Dims ones(sizes.size(), SymExpr(1));
    return builder_.emit("slice", {room},
                         {{"start", zeros}, {"limit", std::move(sizes)}, {"stride", ones}});
  }

  void give_room() {
    std::vector<Value> order(builder_.inputs().begin(), builder_.inputs().end());
    for (const Appended& each : wanted_.appended) {
      const Value past = order[each.carried];
      builder_.drop_inputs({&past, 1});
      Dims sizes = past.meta().sizes;
      sizes[each.dimension] = SymExpr(each.room);
      order[each.carried] = builder_.input(
          ir::TensorMeta::of(past.meta().dtype, std::move(sizes), past.meta().device),
          past.node->name(), body_.input_label(each.carried));
      rooms_[past] = order[each.carried];
    }
    builder_.order_inputs(order);
    for (const auto& [past, room] : rooms_) values_[past] = beginning_of(room, past.meta().sizes);
  }

  std::vector<Value> mapped(std::span<const Value> values) const {
    std::vector<Value> result;
    for (const Value& value : values) result.push_back(map(value));
    return result;
  }

  void visit(const NodePtr& node) {
    std::vector<Value> after = mapped(node->after());
    if (const Appended* append = appended(node.get())) return append_to(*append, *node, after);
    const Node* made = builder_.with_inputs(node, mapped(node->inputs()), after);
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      values_[node->value(k)] = made->value(k);
  }

  void append_to(const Appended& append, const Node& concat, std::vector<Value> after) {
    const auto axis = static_cast<std::int64_t>(append.dimension);
    builder_.context = {concat.annotations(), std::move(after), concat.location(), {}, {}};
    const std::vector<Value> more = mapped(concat.inputs().subspan(1));
    const Value added =
        more.size() == 1 ? more[0] : builder_.call("concat", more, {{"axis", axis}})->value();
    const Value room = rooms_.at(concat.input(0));
    const Value all =
        builder_.emit("slice_scatter", {room, added},
                      {{"axis", axis}, {"start", concat.input(0).meta().sizes[append.dimension]}});
    values_[concat.value()] = beginning_of(all, concat.output().sizes);
    builder_.context = {};
    written_.emplace_back(room, all);
  }

  const ir::Graph& body_;
  const BodyInPlace& wanted_;
  std::shared_ptr<ir::ShapeEnv> env_;
  ir::GraphBuilder builder_;
  std::unordered_map<Value, Value, Value::Hash> values_;
  std::map<Value, Value> rooms_;  ///< by carried value of the body
  std::vector<std::pair<Value, Value>> written_;
};

/// Carried values whose results begin with them, where what they grow to is known before the body runs.
std::vector<NestedCall::Appended> appended_values(const ir::Graph& body, const ir::Graph& condition,
                                                  std::uint32_t carried) {
  std::vector<NestedCall::Appended> appended;
  const bool finds_sizes = std::ranges::any_of(body.nodes(), [](const NodePtr& node) {
    return !node->is_argument() && !ir::unbacked_defined(*node).empty();
  });
  if (finds_sizes) return appended;
  std::uint32_t next_symbol = body.next_unbacked_symbol();
  for (std::uint32_t k = 0; k < carried; ++k) {
    const Value& input = body.inputs()[k];
    const Node& node = *body.outputs()[k].node;
    if (node.op_name() != "concat" || node.input(0) != input ||
        std::ranges::count(node.inputs(), input) != 1 ||
        node.output().dtype != input.meta().dtype || is_read(condition, condition.inputs()[k]))
      continue;
    const bool is_first = std::ranges::none_of(appended, [&](const NestedCall::Appended& each) {
      return body.outputs()[each.carried].node == &node;
    });
    const std::int64_t axis = node.integer("axis");
    const auto dimension =
        static_cast<std::uint32_t>(axis < 0 ? axis + node.output().rank() : axis);
    if (is_first)
      appended.push_back(
          {k, dimension, {Symbol::Kind::Unbacked, next_symbol++}, node.output().sizes[dimension]});
  }
  return appended;
}

}  // namespace

BodyInPlace body_in_place(const ir::Graph& body, const ir::Graph* condition,
                          std::uint32_t carried) {
  BodyInPlace wanted{body, std::vector<bool>(carried), {}};
  if (condition != nullptr) wanted.appended = appended_values(body, *condition, carried);
  for (std::uint32_t k = 0; k < carried; ++k) wanted.updated[k] = is_overwritten(body, k);
  for (const NestedCall::Appended& each : wanted.appended) wanted.updated[each.carried] = true;
  // What is still written back as a whole when updates are in place is no gain.
  while (std::ranges::count(wanted.updated, true) != 0) {
    wanted.graph = ir::reinplace(Builder(body, wanted).make());
    if (wanted.graph.write_backs().empty()) return wanted;
    for (const ir::Graph::WriteBack& write : wanted.graph.write_backs()) {
      const auto k = static_cast<std::uint32_t>(
          std::ranges::find(wanted.graph.inputs(), write.target) - wanted.graph.inputs().begin());
      wanted.updated[k] = false;
      std::erase_if(wanted.appended,
                    [&](const NestedCall::Appended& each) { return each.carried == k; });
    }
  }
  wanted.graph = body;
  return wanted;
}

}  // namespace heddle::jit
