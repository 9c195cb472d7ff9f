#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/closest.h"
#include "heddle/error.h"
#include "ir/graph.h"
#include "ir/graph_data.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

std::atomic<StorageId> next_storage{1};

[[noreturn]] void fail_call(const OpDef& op, std::string what, const base::Location& location,
                            std::string expected, std::string got) {
  throw ArgumentError({.what = fmt::format("{}: {}", op.name, what),
                       .where = location.to_string(),
                       .expected = std::move(expected),
                       .got = std::move(got)});
}

void check_operands(const OpDef& op, std::span<const Value> inputs, const base::Location& location) {
  std::size_t required = 0;
  bool variadic = false;
  for (const OperandSpec& operand : op.operands) {
    required += operand.arity == OperandSpec::Arity::One ? 1 : 0;
    variadic = variadic || operand.arity == OperandSpec::Arity::Variadic;
  }
  const std::size_t most = variadic ? inputs.size() : op.operands.size();
  if (inputs.size() < required || inputs.size() > most)
    fail_call(op, "number of operands", location,
              required == op.operands.size() && !variadic
                  ? std::to_string(required)
                  : fmt::format("{} to {}", required, variadic ? "any" : std::to_string(most)),
              std::to_string(inputs.size()));
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const bool optional =
        k < op.operands.size() && op.operands[k].arity == OperandSpec::Arity::Optional;
    if (!inputs[k] && !optional)
      fail_call(op, fmt::format("operand {}", k), location, "a value", "none");
  }
}

/// An integer list where sizes are wanted, and a whole number where a float is, are taken as such.
Attr coerced(Attr attr, AttrKind kind) {
  if (kind == AttrKind::SymInts) {
    if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&attr))
      return Dims(ints->begin(), ints->end());
  }
  if (kind == AttrKind::SymInt) {
    if (const auto* integer = std::get_if<std::int64_t>(&attr)) return SymExpr(*integer);
  }
  if (kind == AttrKind::Float) {
    if (const auto* integer = std::get_if<std::int64_t>(&attr)) return static_cast<double>(*integer);
  }
  return attr;
}

Attrs complete(const OpDef& op, Attrs attrs, const base::Location& location) {
  for (auto& [name, value] : attrs) {
    const auto spec = std::find_if(op.attrs.begin(), op.attrs.end(),
                                   [&name = name](const AttrSpec& s) { return s.name == name; });
    if (spec == op.attrs.end()) {
      std::vector<std::string_view> known;
      for (const AttrSpec& s : op.attrs) known.push_back(s.name);
      fail_call(op, "unknown attribute", location, std::string(base::closest(name, known)), name);
    }
    value = coerced(std::move(value), spec->kind);
    if (kind_of(value) != spec->kind)
      fail_call(op, fmt::format("attribute {}", name), location, std::string(name_of(spec->kind)),
                std::string(name_of(kind_of(value))));
  }
  for (const AttrSpec& spec : op.attrs) {
    if (attrs.contains(spec.name)) continue;
    if (!spec.default_value)
      fail_call(op, "missing attribute", location, std::string(spec.name), {});
    attrs.emplace(spec.name, *spec.default_value);
  }
  return attrs;
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name, std::shared_ptr<ShapeEnv> env)
    : env_(env ? std::move(env) : std::make_shared<ShapeEnv>()),
      data_(std::make_shared<Graph::Data>()) {
  data_->name = std::move(name);
}

std::string GraphBuilder::unique_name(std::string wanted) {
  const bool generated = wanted.empty();
  if (generated) wanted = "v";
  if (!generated && taken_.emplace(wanted, 0).second) return wanted;
  std::uint32_t& next = taken_[wanted];
  for (;;) {
    std::string candidate = generated ? fmt::format("v{}", next++) : fmt::format("{}_{}", wanted, next++);
    if (taken_.emplace(candidate, 0).second) return candidate;
  }
}

Value GraphBuilder::input(TensorMeta meta, std::string name, std::string label) {
  auto node = std::make_shared<Node>();
  node->op_ = &op_named("input");
  meta.storage = next_storage.fetch_add(1);
  node->outputs_.push_back(std::move(meta));
  node->names_.push_back(unique_name(std::move(name)));
  node->location_ = context.location;
  const Value value = node->value();
  const auto at = std::find_if(data_->inputs.begin(), data_->inputs.end(), [](const Value& input) {
    return input.node->op_name() == "param";
  });
  data_->input_labels.insert(data_->input_labels.begin() + (at - data_->inputs.begin()),
                             std::move(label));
  data_->inputs.insert(at, value);
  data_->nodes.push_back(std::move(node));
  return value;
}

Value GraphBuilder::parameter(TensorMeta meta, LiteralPtr literal, std::string name,
                              std::string label) {
  auto node = std::make_shared<Node>();
  node->op_ = &op_named("param");
  meta.storage = next_storage.fetch_add(1);
  node->outputs_.push_back(std::move(meta));
  node->names_.push_back(unique_name(std::move(name)));
  node->location_ = context.location;
  if (literal) data_->parameters.emplace(node.get(), std::move(literal));
  const Value value = node->value();
  data_->inputs.push_back(value);
  data_->input_labels.push_back(std::move(label));
  data_->nodes.push_back(std::move(node));
  return value;
}

const Node* GraphBuilder::call(const OpDef& op, std::span<const Value> inputs, Attrs attrs) {
  check_operands(op, inputs, context.location);
  auto node = std::make_shared<Node>();
  node->op_ = &op;
  node->inputs_.assign(inputs.begin(), inputs.end());
  node->attrs_ = complete(op, std::move(attrs), context.location);
  node->annotations_ = context.annotations;
  node->after_ = context.after;
  node->location_ = context.location;
  node->outputs_ =
      op.infer(InferContext(op, node->inputs_, node->attrs_, *env_, node->location_));
  HD_CHECK(op.outputs < 0 || static_cast<std::size_t>(op.outputs) == node->outputs_.size(),
           std::string(op.name));
  for (std::uint32_t k = 0; k < node->outputs_.size(); ++k) {
    const Alias alias = alias_of(*node, k);
    const bool shares = alias.kind == Alias::Kind::View || alias.kind == Alias::Kind::Mutates;
    node->outputs_[k].storage =
        shares ? node->inputs_[alias.operand].meta().storage : next_storage.fetch_add(1);
    node->names_.push_back(unique_name(
        k == 0 || context.name.empty() ? context.name : fmt::format("{}_{}", context.name, k)));
  }
  context.name.clear();
  data_->nodes.push_back(node);
  return node.get();
}

const Node* GraphBuilder::call(std::string_view op, std::span<const Value> inputs, Attrs attrs) {
  return call(op_named(op), inputs, std::move(attrs));
}
const Node* GraphBuilder::call(std::string_view op, std::initializer_list<Value> inputs, Attrs attrs) {
  return call(op_named(op), std::span<const Value>(inputs.begin(), inputs.size()), std::move(attrs));
}
Value GraphBuilder::emit(std::string_view op, std::initializer_list<Value> inputs, Attrs attrs) {
  return call(op, inputs, std::move(attrs))->value();
}

Value GraphBuilder::constant(Literal literal) {
  return emit("const", {}, {{"value", std::make_shared<const Literal>(std::move(literal))}});
}
Value GraphBuilder::scalar(DType dtype, double value) { return constant(Literal::scalar(dtype, value)); }

void GraphBuilder::share(const NodePtr& node) {
  for (const std::string& name : node->names()) taken_.emplace(name, 0);
  data_->nodes.push_back(node);
}

const Node* GraphBuilder::with_inputs(const NodePtr& node, std::span<const Value> inputs,
                                      std::span<const Value> after) {
  if (std::equal(inputs.begin(), inputs.end(), node->inputs().begin(), node->inputs().end()) &&
      std::equal(after.begin(), after.end(), node->after().begin(), node->after().end())) {
    share(node);
    return node.get();
  }
  const Context kept = std::exchange(
      context, Context{node->annotations(), {after.begin(), after.end()}, node->location(), {}});
  const Node* made = call(node->op(), inputs, node->attrs());
  Node& fresh = *const_cast<Node*>(made);
  fresh.names_.assign(node->names().begin(), node->names().end());
  for (const std::string& name : fresh.names_) taken_.emplace(name, 0);
  for (std::size_t k = 0; k < fresh.outputs_.size(); ++k) {
    const Alias alias = alias_of(fresh, static_cast<std::uint32_t>(k));
    if (alias.kind == Alias::Kind::Fresh || alias.kind == Alias::Kind::MayReuse)
      fresh.outputs_[k].storage = node->output(k).storage;
  }
  context = kept;
  ++reinferred_;
  return made;
}

void GraphBuilder::adopt(const Graph& graph) {
  data_->inputs = graph.data_->inputs;
  data_->input_labels = graph.data_->input_labels;
  data_->parameters = graph.data_->parameters;
  for (const NodePtr& node : graph.nodes()) {
    for (const std::string& name : node->names()) taken_.emplace(name, 0);
  }
}

void GraphBuilder::output(Value value, std::string label) {
  HD_CHECK(value.node != nullptr);
  data_->outputs.push_back(value);
  data_->output_labels.push_back(std::move(label));
}

void GraphBuilder::write_back(Value target, Value source) {
  data_->write_backs.push_back({target, source});
}

void GraphBuilder::assume(Assumption assumption) {
  data_->assumptions.push_back(std::move(assumption));
}

Graph GraphBuilder::finish() {
  for (const Assumption& assumption : env_->assumptions) {
    const bool present =
        std::any_of(data_->assumptions.begin(), data_->assumptions.end(), [&](const Assumption& a) {
          return a.predicate == assumption.predicate;
        });
    if (!present) data_->assumptions.push_back(assumption);
  }
  Graph graph;
  graph.data_ = std::move(data_);
  return graph;
}

}  // namespace heddle::ir
