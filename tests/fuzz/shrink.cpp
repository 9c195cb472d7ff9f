#include "tests/fuzz/shrink.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/text.h"

namespace heddle::fuzz {

using ir::Literal;
using ir::Value;

namespace {

/// What is left of a case.
struct Rest {
  std::vector<std::size_t> outputs;  ///< numbers of results, those of write-backs included
  std::set<Value> cut;               ///< values that become inputs
  std::vector<Call> calls;
  bool ordered = true;  ///< keeps order edges
};

class Shrinker {
 public:
  Shrinker(const Case& subject, const Failure& failure, const Compile& compile)
      : subject_(subject), failure_(failure), compile_(compile) {}

  Case run() {
    for (std::size_t k = 0; k < subject_.qualities.size(); ++k) rest_.outputs.push_back(k);
    rest_.calls = subject_.calls;
    fewer_calls();
    fewer_outputs();
    for (bool changed = true; changed;) changed = fewer_nodes();
    smaller_sizes();
    Rest unordered = rest_;
    unordered.ordered = false;
    accept(unordered);
    return derive(rest_);
  }

 private:
  std::size_t plain_outputs() const { return subject_.graph.outputs().size(); }
  Value result(std::size_t k) const {
    return k < plain_outputs() ? subject_.graph.outputs()[k]
                               : subject_.graph.write_backs()[k - plain_outputs()].source;
  }

  /// What the evaluator refuses, such as an index into what became too small, shows nothing.
  std::optional<Failure> check(const Rest& rest) const {
    try {
      return check_case(derive(rest), compile_);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  bool accept(const Rest& rest) {
    const auto failure = check(rest);
    if (!failure || failure->kind != failure_.kind) return false;
    if (failure->kind == Failure::Kind::Thrown && failure->what != failure_.what) return false;
    rest_ = rest;
    return true;
  }

  void fewer_calls() {
    Rest last = rest_;
    last.calls = {rest_.calls[failure_.call]};
    accept(last);
  }

  void fewer_outputs() {
    for (std::size_t k = rest_.outputs.size(); k-- > 0 && rest_.outputs.size() > 1;) {
      Rest next = rest_;
      next.outputs.erase(next.outputs.begin() + static_cast<std::ptrdiff_t>(k));
      accept(next);
    }
  }

  bool fewer_nodes() {
    bool changed = false;
    for (const ir::NodePtr& node : subject_.graph.nodes()) {
      if (node->inputs().empty() && node->op_name() != "iota") continue;
      Rest next = rest_;
      for (std::uint32_t k = 0; k < node->outputs().size(); ++k) next.cut.insert(node->value(k));
      if (next.cut.size() == rest_.cut.size() || !needed(rest_).contains(node.get())) continue;
      changed = accept(next) || changed;
    }
    return changed;
  }

  void smaller_sizes() {
    for (std::size_t c = 0; c < rest_.calls.size(); ++c) {
      const base::SymbolValues before = rest_.calls[c].sizes;
      for (const auto& [symbol, old] : before) {
        for (std::int64_t size = 0; size < old && size < 4; ++size) {
          Rest next = rest_;
          next.calls[c].sizes[symbol] = size;
          if (holds(next.calls[c]) && accept(next)) break;
        }
      }
    }
  }

  bool holds(const Call& call) const {
    return std::ranges::all_of(subject_.graph.assumptions(), [&](const ir::Assumption& assumption) {
      return assumption.predicate.evaluate(call.sizes);
    });
  }

  std::set<const ir::Node*> needed(const Rest& rest) const {
    std::set<const ir::Node*> nodes;
    for (const std::size_t k : rest.outputs) {
      nodes.insert(result(k).node);
      if (k >= plain_outputs())
        nodes.insert(subject_.graph.write_backs()[k - plain_outputs()].target.node);
    }
    const auto all = subject_.graph.nodes();
    for (std::size_t k = all.size(); k-- > 0;) {
      const ir::NodePtr& node = all[k];
      if (!nodes.contains(node.get()) || rest.cut.contains(node->value())) continue;
      for (const Value& operand : node->inputs())
        if (operand) nodes.insert(operand.node);
      if (!rest.ordered) continue;
      for (const Value& first : node->after()) nodes.insert(first.node);
    }
    return nodes;
  }

  /// The needed nodes, and inputs that nobody reads but that give a size its value.
  std::set<const ir::Node*> kept(const Rest& rest) const {
    std::set<const ir::Node*> nodes = needed(rest);
    std::set<base::Symbol> bound;
    const auto bind = [&](const ir::Node* node) {
      bool news = false;
      for (const ir::TensorMeta& meta : node->outputs())
        for (const ir::SymExpr& size : meta.sizes)
          if (size.is_symbol()) news = bound.insert(size.symbol()).second || news;
      return news;
    };
    for (const ir::Node* node : nodes)
      if (node->op_name() == "input" || rest.cut.contains(node->value())) bind(node);
    for (const Value input : subject_.graph.inputs())
      if (input.node->op_name() == "input" && bind(input.node)) nodes.insert(input.node);
    return nodes;
  }

  /// What the values that are cut off hold in a call.
  std::map<Value, Literal> held(const Rest& rest, const Case& original, std::size_t call) const {
    ir::GraphBuilder builder("main");
    builder.adopt(original.graph);
    for (const ir::NodePtr& node : original.graph.nodes()) builder.share(node);
    for (const Value& value : rest.cut) builder.output(value);
    const auto literals = ir::evaluate(builder.finish(), arguments_of(original, call));
    std::map<Value, Literal> result;
    std::size_t next = 0;
    for (const Value& value : rest.cut) result[value] = literals[next++];
    return result;
  }

  Case derive(const Rest& rest) const {
    Case original = subject_;
    original.calls = rest.calls;
    Case small;
    small.seed = subject_.seed;
    small.calls = rest.calls;
    std::vector<Value> inputs;  // of the small graph, as values of the original
    small.graph = copy(rest, inputs);
    for (const std::size_t k : rest.outputs) small.qualities.push_back(subject_.qualities[k]);
    for (std::size_t call = 0; call < rest.calls.size(); ++call) {
      std::map<Value, Literal> values =
          rest.cut.empty() ? std::map<Value, Literal>() : held(rest, original, call);
      const std::vector<Literal> arguments = arguments_of(original, call);
      std::size_t next = 0;
      for (const Value input : subject_.graph.inputs())
        if (subject_.graph.parameter(input.node) == nullptr) values[input] = arguments[next++];
      small.given.emplace_back();
      for (const Value& input : inputs) small.given.back().push_back(values.at(input));
    }
    return small;
  }

  ir::Graph copy(const Rest& rest, std::vector<Value>& inputs) const {
    const std::set<const ir::Node*> nodes = kept(rest);
    ir::GraphBuilder builder("main");
    std::map<Value, Value> values;
    for (const ir::NodePtr& node : subject_.graph.nodes()) {
      const bool is_input = node->op_name() == "input";
      if (!nodes.contains(node.get())) continue;
      if (const Literal* literal = subject_.graph.parameter(node.get())) {
        values[node->value()] = builder.parameter(
            node->output(), std::make_shared<const Literal>(*literal), node->name());
        continue;
      }
      const bool cut = rest.cut.contains(node->value());
      for (std::uint32_t k = 0; (is_input || cut) && k < node->outputs().size(); ++k) {
        const ir::TensorMeta& meta = node->output(k);
        values[node->value(k)] =
            builder.input(ir::TensorMeta::of(meta.dtype, meta.sizes), node->names()[k]);
        inputs.push_back(node->value(k));
      }
      if (!is_input && !cut) emit(*node, rest, builder, values);
    }
    for (const std::size_t k : rest.outputs) {
      if (k < plain_outputs())
        builder.output(values.at(result(k)));
      else
        builder.write_back(values.at(subject_.graph.write_backs()[k - plain_outputs()].target),
                           values.at(result(k)));
    }
    return builder.finish();
  }

  static void emit(const ir::Node& node, const Rest& rest, ir::GraphBuilder& builder,
                   std::map<Value, Value>& values) {
    std::vector<Value> operands;
    for (const Value& operand : node.inputs())
      operands.push_back(operand ? values.at(operand) : Value());
    builder.context = {node.annotations(), {}, {}, node.name(), {}};
    for (const Value& first : node.after())
      if (rest.ordered) builder.context.after.push_back(values.at(first));
    const ir::Node* made = builder.call(node.op(), operands, node.attrs());
    builder.context = {};
    for (std::uint32_t k = 0; k < node.outputs().size(); ++k)
      values[node.value(k)] = made->value(k);
  }

  const Case& subject_;
  const Failure& failure_;
  const Compile& compile_;
  Rest rest_;
};

}  // namespace

Case shrink(const Case& subject, const Failure& failure, const Compile& compile) {
  return Shrinker(subject, failure, compile).run();
}

std::string report(const Case& subject, const Compile& compile) {
  const auto failure = check_case(subject, compile);
  if (!failure) return "the case passes when it is run again";
  const Case small = shrink(subject, *failure, compile);
  const auto left = check_case(small, compile);
  std::string text = fmt::format("// seed {}: {}\n// shrunk: ", subject.seed, failure->what);
  text += left ? fmt::format("output {}: {}", left->output, left->what) : "passes";
  for (const Call& call : small.calls)
    for (const auto& [symbol, size] : call.sizes)
      text += fmt::format("\n// {} = {}", symbol.to_string(), size);
  return text + "\n" + ir::print(small.graph);
}

}  // namespace heddle::fuzz
