#include "engine/outputs_in_place.h"

#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/environment.h"
#include "ir/op.h"

namespace heddle::engine {

namespace {

using ir::Dims;
using ir::Node;
using ir::NodePtr;
using ir::SymExpr;
using ir::Value;

std::vector<base::Symbol> symbols_of(const SymExpr& size) {
  std::vector<base::Symbol> symbols;
  size.collect_symbols(symbols);
  return symbols;
}

bool known_before_the_run(const SymExpr& size) {
  return std::ranges::all_of(symbols_of(size), [](const base::Symbol& symbol) {
    return symbol.kind == base::Symbol::Kind::Size;
  });
}

std::size_t axis_of(const Node& concat) {
  const std::int64_t axis = concat.integer("axis");
  return static_cast<std::size_t>(axis < 0 ? axis + concat.output().rank() : axis);
}

class GraphInPlace {
 public:
  GraphInPlace(const ir::Graph& graph, base::SymbolValues& hints, Guards& guards,
               OutputsInPlace& places)
      : graph_(graph),
        hints_(hints),
        guards_(guards),
        all_(places),
        first_room_(graph.next_size_symbol()),
        next_(first_room_),
        env_(ir::environment_of(graph)),
        builder_(graph.name(), env_) {
    all_.outputs = graph.outputs().size();
    for (std::size_t n = 0; n < all_.inputs.size(); ++n) find_append(n);
    for (std::size_t k = 0; k < guards_.inputs.size(); ++k)
      if (guards_.inputs[k].donated) find_update(k);
  }

  bool empty() const { return all_.inputs.empty() && all_.updates.empty(); }

  ir::Graph make() {
    take_memory();
    for (const NodePtr& node : graph_.nodes())
      if (!values_.contains(node->value())) visit(node);
    for (std::size_t k = 0; k < graph_.outputs().size(); ++k)
      if (!is_in_place(graph_.outputs()[k]))
        builder_.output(map(graph_.outputs()[k]), graph_.output_label(k));
    for (const ir::Graph::WriteBack& write : graph_.write_backs())
      builder_.write_back(map(write.target), map(write.source));
    for (const auto& [memory, updated] : written_) builder_.write_back(memory, updated);
    for (const Update& update : all_.updates)
      builder_.write_back(map(graph_.inputs()[update.input]),
                          map(graph_.outputs()[update.outputs[0]]));
    keep_other_assumptions();
    return builder_.finish();
  }

 private:
  Value argument(std::size_t named) const { return graph_.inputs()[all_.inputs[named]]; }
  Value map(Value value) const { return value ? values_.at(value) : value; }
  /// What computes it, where the value itself is a view.
  Value order_of(const Value& value) const {
    return is_appended(value) ? map(value).node->input(0) : map(value);
  }
  bool is_appended(const Value& value) const { return places_.contains(value.node); }
  bool is_in_place(const Value& output) const {
    return is_appended(output) || updated_.contains(output);
  }

  /// Whether the callable writes to the argument, or somebody else may.
  bool is_written(const Value& input) const {
    return ir::is_donated(input) ||
           std::ranges::any_of(graph_.write_backs(), [&](const auto& write) {
             return write.target == input || write.source == input;
           });
  }

  bool begins_with(const Value& output, const Value& past) const {
    const Node& node = *output.node;
    if (node.op_name() != "concat" || node.inputs().size() < 2 || node.input(0) != past)
      return false;
    return node.output().dtype == past.meta().dtype &&
           std::ranges::count(node.inputs(), past) == 1 &&
           known_before_the_run(node.output().sizes[axis_of(node)]);
  }

  void find_append(std::size_t named) {
    const Value past = argument(named);
    if (is_written(past)) return;
    const auto outputs = graph_.outputs();
    const auto first = std::ranges::find_if(
        outputs, [&](const Value& output) { return begins_with(output, past); });
    if (first == outputs.end()) return;
    const std::size_t axis = axis_of(*first->node);
    Append append{named, axis, first->meta().sizes[axis], {}};
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (outputs[k] == *first) append.outputs.push_back(k);
    places_[first->node] = all_.appends.size();
    all_.appends.push_back(std::move(append));
  }

  /// A donated argument that one output alone reads, and is with a part of it overwritten.
  void find_update(std::size_t k) {
    const Value input = graph_.inputs()[k];
    if (!guards_.inputs[k].row_major) return;
    const Node* reader = nullptr;
    for (const NodePtr& node : graph_.nodes()) {
      const auto reads = std::ranges::count(node->inputs(), input);
      if (reads == 0) continue;
      if (reads > 1 || reader != nullptr) return;
      reader = node.get();
    }
    if (reader == nullptr || std::ranges::count(graph_.outputs(), input) != 0) return;
    const auto pair = std::ranges::find_if(reader->op().in_place, [&](const ir::InPlace& each) {
      return reader->input(each.operand) == input;
    });
    if (pair == reader->op().in_place.end()) return;
    const Value result = reader->value(pair->output);
    Update update{k, {}};
    for (std::size_t o = 0; o < graph_.outputs().size(); ++o)
      if (graph_.outputs()[o] == result) update.outputs.push_back(o);
    if (update.outputs.empty()) return;
    updated_.insert(result);
    all_.updates.push_back(std::move(update));
  }

  const Append* append_to(std::size_t named) const {
    const auto found = std::ranges::find(all_.appends, named, &Append::named);
    return found == all_.appends.end() ? nullptr : &*found;
  }

  /// Sizes of the memory that `past` lies in: another one along the axis, or wherever it may be.
  Dims room_sizes(const Value& past, const Append* append) {
    Dims sizes = past.meta().sizes;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (append != nullptr && d != append->axis) continue;
      const SymExpr wanted = append != nullptr ? append->length : sizes[d];
      sizes[d] = SymExpr::size(next_++);
      hints_[sizes[d].symbol()] = wanted.evaluate(hints_);
    }
    return sizes;
  }

  /// The new arguments, in the places of the old ones and behind the last one.
  void take_memory() {
    builder_.adopt(graph_);
    std::vector<Value> order(builder_.inputs().begin(), builder_.inputs().end());
    const auto first_parameter = std::ranges::find_if(
        order, [](const Value& input) { return input.node->op_name() == "param"; });
    std::vector<Value> given, behind(first_parameter, order.end());
    order.erase(first_parameter, order.end());
    for (const Update& update : all_.updates) {
      const Value input = order[update.input];
      builder_.drop_inputs({&input, 1});
      order[update.input] = values_[input] =
          builder_.input(input.meta(), input.node->name(), graph_.input_label(update.input));
    }
    for (std::size_t n = 0; n < all_.inputs.size(); ++n) {
      const std::size_t k = all_.inputs[n];
      const Value past = order[k];
      const std::string label = graph_.input_label(k);
      builder_.drop_inputs({&past, 1});
      Dims sizes = past.meta().sizes;
      InputGuard& guard = guards_.inputs[k];
      guard.sizes = room_sizes(past, append_to(n));
      order[k] =
          builder_.input(ir::TensorMeta::of(guard.dtype, guard.sizes), past.node->name(), label);
      InputGuard there;
      there.name = fmt::format("{}.sizes", guard.name);
      there.dtype = DType::Bool;
      there.device = guard.device;
      there.sizes = sizes;
      there.sizes.emplace_back(0);
      given.push_back(builder_.input(ir::TensorMeta::of(there.dtype, there.sizes),
                                     fmt::format("{}.sizes", past.node->name())));
      guards_.inputs.push_back(std::move(there));
      env_->hints = hints_;
      values_[past] = beginning_of(order[k], std::move(sizes));
    }
    order.insert(order.end(), given.begin(), given.end());
    order.insert(order.end(), behind.begin(), behind.end());
    builder_.order_inputs(order);
  }

  Value beginning_of(const Value& room, Dims sizes) {
    const Dims zeros(sizes.size(), SymExpr(0));
    const Dims ones(sizes.size(), SymExpr(1));
    return builder_.emit("slice", {room},
                         {{"start", zeros}, {"limit", std::move(sizes)}, {"stride", ones}});
  }

  void visit(const NodePtr& node) {
    std::vector<Value> after;
    for (const Value& first : node->after()) after.push_back(order_of(first));
    if (is_appended(node->value())) return append(*node, std::move(after));
    std::vector<Value> inputs;
    for (const Value& input : node->inputs()) inputs.push_back(map(input));
    const Node* made = builder_.with_inputs(node, inputs, after);
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      values_[node->value(k)] = made->value(k);
  }

  void append(const Node& concat, std::vector<Value> after) {
    const auto axis = static_cast<std::int64_t>(all_.appends[places_.at(&concat)].axis);
    const Value past = values_.at(concat.input(0));
    const Value room = past.node->input(0);
    builder_.context = {concat.annotations(), std::move(after), concat.location(), {}, {}};
    std::vector<Value> more;
    for (const Value& input : concat.inputs().subspan(1)) more.push_back(map(input));
    Value added =
        more.size() == 1 ? more[0] : builder_.call("concat", more, {{"axis", axis}})->value();
    if (added.meta().dtype != room.meta().dtype)
      added = builder_.emit("convert", {added}, {{"dtype", room.meta().dtype}});
    builder_.free_name(concat.name());
    builder_.context.name = concat.name();  // by which options know it
    const Value updated = builder_.emit(
        "slice_scatter", {room, added},
        {{"axis", axis}, {"start", past.meta().sizes[static_cast<std::size_t>(axis)]}});
    values_[concat.value()] = beginning_of(updated, concat.output().sizes);
    builder_.context = {};
    written_.emplace_back(room, updated);
  }

  /// What was found to be needed of sizes but those of the new memory guards the graph.
  void keep_other_assumptions() {
    const std::span<const ir::Assumption> found(env_->assumptions);
    for (const ir::Assumption& assumption : found.subspan(graph_.assumptions().size())) {
      std::vector<base::Symbol> symbols = symbols_of(assumption.predicate.left);
      assumption.predicate.right.collect_symbols(symbols);
      const bool of_room = std::ranges::any_of(symbols, [&](const base::Symbol& symbol) {
        return symbol.kind == base::Symbol::Kind::Size && symbol.id >= first_room_;
      });
      if (!of_room) guards_.assumptions.push_back(assumption);
    }
  }

  const ir::Graph& graph_;
  base::SymbolValues& hints_;
  Guards& guards_;
  OutputsInPlace& all_;
  const std::uint32_t first_room_;
  std::uint32_t next_;
  std::shared_ptr<ir::ShapeEnv> env_;
  ir::GraphBuilder builder_;
  std::unordered_map<const Node*, std::size_t> places_;  ///< in the list, of concatenations
  std::unordered_map<Value, Value, Value::Hash> values_;
  std::unordered_set<Value, Value::Hash> updated_;  ///< results
  std::vector<std::pair<Value, Value>>
      written_;  ///< memory that is appended to, and what it holds in the end
};

}  // namespace

ir::Graph put_outputs_in_place(const ir::Graph& graph, base::SymbolValues& hints, Guards& guards,
                               OutputsInPlace& places) {
  GraphInPlace in_place(graph, hints, guards, places);
  if (in_place.empty()) return graph;
  ir::Graph result = in_place.make();
  guards.note_writes(result);
  return result;
}

ir::Dims callable_sizes(std::span<const InputGuard> guards, const OutputsInPlace& places,
                        std::size_t k) {
  const auto named = std::ranges::find(places.inputs, k);
  if (named == places.inputs.end()) return guards[k].sizes;
  const std::size_t first = guards.size() - places.inputs.size();
  ir::Dims sizes = guards[first + static_cast<std::size_t>(named - places.inputs.begin())].sizes;
  sizes.pop_back();
  return sizes;
}

}  // namespace heddle::engine
