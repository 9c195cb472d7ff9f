#include <algorithm>
#include <atomic>
#include <cctype>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"
#include "base/closest.h"
#include "base/relabel.h"
#include "heddle/error.h"
#include "ir/analysis/unbacked.h"
#include "ir/graph.h"
#include "ir/graph_data.h"
#include "ir/infer_count.h"
#include "ir/op.h"
#include "ir/scope_name.h"

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

void check_operands(const OpDef& op, std::span<const Value> inputs,
                    const base::Location& location) {
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
  if (kind == AttrKind::Ints) {
    if (const auto* dims = std::get_if<Dims>(&attr)) {
      std::vector<std::int64_t> ints;
      for (const SymExpr& dim : *dims) {
        if (!dim.is_constant()) return attr;
        ints.push_back(dim.constant());
      }
      return ints;
    }
  }
  if (kind == AttrKind::SymInt) {
    if (const auto* integer = std::get_if<std::int64_t>(&attr)) return SymExpr(*integer);
  }
  if (kind == AttrKind::Float) {
    if (const auto* integer = std::get_if<std::int64_t>(&attr))
      return static_cast<double>(*integer);
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

thread_local std::uint64_t inferred = 0;

bool same_type(const Value& a, const Value& b) {
  if (a == b) return true;
  return a && b && a.meta().same_layout(b.meta());
}

}  // namespace

std::uint64_t inferred_nodes() { return inferred; }

std::string scope_name(const Annotations& annotations) {
  const auto found = annotations.find("name");
  if (found == annotations.end()) return {};
  const auto* text = std::get_if<std::string>(&found->second.value);
  return text == nullptr ? std::string() : *text;
}

std::string spoken_op(const Node& node) {
  const std::string scope = scope_name(node.annotations());
  return (scope.empty() ? "" : scope + ": ") + std::string(node.op_name());
}

GraphBuilder::GraphBuilder(std::string name, std::shared_ptr<ShapeEnv> env)
    : env_(env ? std::move(env) : std::make_shared<ShapeEnv>()),
      data_(std::make_shared<Graph::Data>()) {
  data_->name = std::move(name);
}

/// Most passes over most graphs ask for no name, and putting all into the map takes as long as going over the graph.
void GraphBuilder::note_names() {
  for (const NodePtr& node : unnoted_)
    for (const std::string& name : node->names()) taken_.take(name);
  unnoted_.clear();
}

std::string GraphBuilder::unique_name(std::string wanted, std::string_view prefix) {
  note_names();
  for (char& c : wanted)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') c = '_';
  const bool generated = wanted.empty();
  if (!generated && taken_.take(wanted)) return wanted;
  const std::string stem = generated ? std::string(prefix) : wanted + "_";
  std::uint32_t next = generated ? generated_[std::string(prefix)] : taken_.next_number(wanted);
  std::string candidate;
  do candidate = stem + std::to_string(next++);
  while (!taken_.take(candidate));
  (generated ? generated_[std::string(prefix)] : taken_.next_number(wanted)) = next;
  return candidate;
}

std::shared_ptr<Node> GraphBuilder::start_input(std::string_view op, TensorMeta meta,
                                                std::string name, Attrs attrs) {
  auto node = std::make_shared<Node>();
  node->op_ = &op_named(op);
  HD_CHECK(meta.strides.size() == meta.sizes.size(), name);
  meta.storage = next_storage.fetch_add(1);
  node->source_ =
      std::make_shared<const Node::Source>(Node::Source{std::move(attrs), {}, context.location});
  node->results_ = std::make_shared<const Node::Results>(Node::Results{{std::move(meta)}, {}});
  node->names_ = std::make_shared<const Node::Names>(1, unique_name(std::move(name)));
  data_->nodes.push_back(node);
  return node;
}

Value GraphBuilder::input(TensorMeta meta, std::string name, std::string label, bool donated) {
  const Attrs attrs = donated ? Attrs{{"donated", true}} : Attrs();
  const Value value = start_input("input", std::move(meta), std::move(name), attrs)->value();
  const auto at = std::find_if(data_->inputs.begin(), data_->inputs.end(),
                               [](const Value& input) { return input.node->op_name() == "param"; });
  data_->input_labels.insert(data_->input_labels.begin() + (at - data_->inputs.begin()),
                             std::move(label));
  data_->inputs.insert(at, value);
  return value;
}

Value GraphBuilder::parameter(TensorMeta meta, LiteralPtr literal, std::string name,
                              std::string label) {
  const Value value = start_input("param", std::move(meta), std::move(name), {})->value();
  if (literal) data_->parameters.emplace(value.node, std::move(literal));
  data_->inputs.push_back(value);
  data_->input_labels.push_back(std::move(label));
  return value;
}

void GraphBuilder::name_outputs(Node& node) {
  const bool is_const = node.op_name() == "const";
  std::string scope;
  if (!is_const) scope = context.origin.empty() ? scope_name(node.annotations()) : context.origin;
  Node::Names names;
  for (std::size_t k = 0; k < node.outputs().size(); ++k) {
    std::string wanted = k < context.names.size() ? context.names[k] : context.name;
    if (wanted.empty() && !scope.empty()) wanted = fmt::format("{}.{}", scope, node.op_name());
    names.push_back(unique_name(std::move(wanted), is_const ? "c" : "v"));
  }
  node.names_ = std::make_shared<const Node::Names>(std::move(names));
  context.name.clear();
  context.names.clear();
}

void GraphBuilder::assign_storages(Node& node, const Node* like, Node::Results* own) {
  const auto storage_of = [&](std::uint32_t k) {
    const Alias alias = alias_of(node, k);
    if (alias.kind == Alias::Kind::View || alias.kind == Alias::Kind::Mutates)
      return node.inputs_[alias.operand].meta().storage;
    if (alias.kind == Alias::Kind::SharesResult) return node.output(alias.operand).storage;
    return like ? like->output(k).storage : next_storage.fetch_add(1);
  };
  for (std::uint32_t k = 0; k < node.outputs().size(); ++k) {
    const StorageId storage = storage_of(k);
    if (storage == node.output(k).storage) continue;
    if (own == nullptr) {
      const auto copy = std::make_shared<Node::Results>(*node.results_);
      own = copy.get();
      node.results_ = copy;
    }
    own->metas[k].storage = storage;
  }
}

namespace {

/// Throws `error` again with the scope that its call stands in and, where it is of arithmetic on sizes and says neither, with
/// the op and its place.
void tell_where(const Error& error, const OpDef& op, const GraphBuilder::Context& context) {
  Error::Parts parts = error.parts();
  const std::string place = context.location.to_string();
  if (parts.where.empty() && !place.empty()) {
    parts.what = fmt::format("{}: {}", op.name, parts.what);
    parts.where = place;
  }
  if (const std::string scope = scope_name(context.annotations); !scope.empty())
    parts.what = scope + ": " + parts.what;
  if (parts.what != error.parts().what) base::rethrow_as(error, parts);
}

}  // namespace

/// What infer says, on the device of the operands.
Node::Results* GraphBuilder::infer(Node& node) {
  ++inferred;
  env_->late.clear();
  const OpDef& op = node.op();
  const InferContext context(op, node.inputs(), node.attrs(), *env_, node.location());
  context.check_float8();
  std::vector<TensorMeta> metas = op.infer(context);
  HD_CHECK(op.outputs < 0 || static_cast<std::size_t>(op.outputs) == metas.size(),
           std::string(op.name));
  DeviceTag device;
  for (const Value& input : node.inputs())
    if (input && input.meta().device != DeviceTag{}) device = input.meta().device;
  for (TensorMeta& meta : metas) {
    HD_CHECK(meta.strides.size() == meta.sizes.size(), std::string(op.name));
    if (meta.device == DeviceTag{}) meta.device = device;
  }
  const auto results =
      std::make_shared<Node::Results>(Node::Results{std::move(metas), std::move(env_->late)});
  node.results_ = results;
  return results.get();
}

const Node* GraphBuilder::call(const OpDef& op, std::span<const Value> inputs, Attrs attrs) {
  auto node = std::make_shared<Node>();
  node->op_ = &op;
  node->inputs_.assign(inputs.begin(), inputs.end());
  node->after_ = context.after;
  Node::Results* results = nullptr;
  try {
    check_operands(op, inputs, context.location);
    node->source_ = std::make_shared<const Node::Source>(Node::Source{
        complete(op, std::move(attrs), context.location), context.annotations, context.location});
    results = infer(*node);
  } catch (const Error& error) {
    tell_where(error, op, context);
    throw;
  }
  assign_storages(*node, nullptr, results);
  name_outputs(*node);
  data_->nodes.push_back(node);
  return node.get();
}

const Node* GraphBuilder::call(std::string_view op, std::span<const Value> inputs, Attrs attrs) {
  return call(op_named(op), inputs, std::move(attrs));
}
const Node* GraphBuilder::call(std::string_view op, std::initializer_list<Value> inputs,
                               Attrs attrs) {
  return call(op_named(op), std::span<const Value>(inputs.begin(), inputs.size()),
              std::move(attrs));
}
Value GraphBuilder::emit(std::string_view op, std::initializer_list<Value> inputs, Attrs attrs) {
  return call(op, inputs, std::move(attrs))->value();
}

Value GraphBuilder::constant(Literal literal) {
  return emit("const", {}, {{"value", std::make_shared<const Literal>(std::move(literal))}});
}
Value GraphBuilder::scalar(DType dtype, double value) {
  return constant(Literal::scalar(dtype, value));
}

void GraphBuilder::share(const NodePtr& node) {
  unnoted_.push_back(node);
  data_->nodes.push_back(node);
}

const Node* GraphBuilder::with_inputs(const NodePtr& node, std::span<const Value> inputs,
                                      std::span<const Value> after) {
  if (std::ranges::equal(inputs, node->inputs()) && std::ranges::equal(after, node->after())) {
    share(node);
    return node.get();
  }
  const std::shared_ptr<Node> made = copy_of(*node, inputs, after);
  for (const std::string& name : made->names()) taken_.take(name);
  return made.get();
}

/// A node like `like` but for its operands: its results are inferred anew where they are of other types.
std::shared_ptr<Node> GraphBuilder::copy_of(const Node& like, std::span<const Value> inputs,
                                            std::span<const Value> after) {
  const auto made = std::make_shared<Node>(like);
  made->inputs_.assign(inputs.begin(), inputs.end());
  made->after_.assign(after.begin(), after.end());
  Node::Results* results = nullptr;
  if (!std::ranges::equal(inputs, like.inputs(), same_type)) {
    const SameNumbers numbers(like, *env_);
    results = infer(*made);
    ++reinferred_;
  }
  assign_storages(*made, &like, results);
  data_->nodes.push_back(made);
  return made;
}

const Node* GraphBuilder::transplant(const NodePtr& node, std::span<const Value> inputs,
                                     std::span<const Value> after, Annotations annotations) {
  const std::shared_ptr<Node> made = copy_of(*node, inputs, after);
  made->source_ = std::make_shared<const Node::Source>(
      Node::Source{node->attrs(), std::move(annotations), node->location()});
  Node::Names names(node->names().begin(), node->names().end());
  for (std::string& name : names) name = unique_name(name);
  made->names_ = std::make_shared<const Node::Names>(std::move(names));
  return made.get();
}

void GraphBuilder::take_names(const Node& replaced, std::span<const Value> by, std::size_t first) {
  for (std::size_t k = 0; k < by.size(); ++k) {
    for (std::size_t at = first; at < data_->nodes.size(); ++at) {
      if (data_->nodes[at].get() != by[k].node) continue;
      auto& node = const_cast<Node&>(*by[k].node);
      const std::string& name = node.names()[by[k].index];
      if (std::ranges::find(replaced.names(), name) != replaced.names().end()) continue;
      Node::Names names = *node.names_;
      names[by[k].index] = replaced.names()[k];
      node.names_ = std::make_shared<const Node::Names>(std::move(names));
    }
  }
}

void GraphBuilder::adopt(const Graph& graph) {
  data_->inputs = graph.data_->inputs;
  data_->input_labels = graph.data_->input_labels;
  data_->parameters = graph.data_->parameters;
  unnoted_.insert(unnoted_.end(), graph.nodes().begin(), graph.nodes().end());
}

void GraphBuilder::free_name(const std::string& name) {
  note_names();
  taken_.free(name);
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
  const auto same = [&](const Assumption& a) { return a.predicate == assumption.predicate; };
  if (std::ranges::none_of(env_->assumptions, same))
    env_->assumptions.push_back(std::move(assumption));
}

std::size_t GraphBuilder::write_back_count() const { return data_->write_backs.size(); }
std::span<const NodePtr> GraphBuilder::nodes() const { return data_->nodes; }
std::span<const Value> GraphBuilder::inputs() const { return data_->inputs; }

void GraphBuilder::order_inputs(std::span<const Value> inputs) {
  HD_CHECK(inputs.size() == data_->inputs.size());
  std::vector<std::string> labels;
  for (const Value& input : inputs) {
    const auto at = std::ranges::find(data_->inputs, input);
    HD_CHECK(at != data_->inputs.end(), input.name());
    labels.push_back(data_->input_labels[static_cast<std::size_t>(at - data_->inputs.begin())]);
  }
  data_->inputs.assign(inputs.begin(), inputs.end());
  data_->input_labels = std::move(labels);
}

void GraphBuilder::drop_inputs(std::span<const Value> inputs) {
  note_names();
  for (const Value& input : inputs) {
    const auto at = std::ranges::find(data_->inputs, input);
    HD_CHECK(at != data_->inputs.end(), input.name());
    data_->input_labels.erase(data_->input_labels.begin() + (at - data_->inputs.begin()));
    data_->inputs.erase(at);
    taken_.free(input.node->name());
    std::erase_if(data_->nodes, [&](const NodePtr& node) { return node.get() == input.node; });
  }
}

GraphBuilder::Checkpoint GraphBuilder::checkpoint() const {
  return {data_->nodes.size(),      data_->inputs, data_->input_labels,  data_->write_backs.size(),
          env_->assumptions.size(), env_->facts,   env_->next_unbacked_, generated_};
}

void GraphBuilder::rollback(const Checkpoint& before) {
  note_names();
  for (std::size_t k = before.nodes; k < data_->nodes.size(); ++k) {
    for (const std::string& name : data_->nodes[k]->names()) taken_.free(name);
    data_->parameters.erase(data_->nodes[k].get());
  }
  data_->nodes.resize(before.nodes);
  data_->inputs = before.inputs;
  data_->input_labels = before.input_labels;
  data_->write_backs.resize(before.write_backs);
  env_->assumptions.resize(before.assumptions);
  env_->facts = before.facts;
  env_->next_unbacked_ = before.next_unbacked;
  generated_ = before.generated;
}

Graph GraphBuilder::finish() {
  data_->assumptions = env_->assumptions;
  Graph graph;
  graph.data_ = std::move(data_);
  return graph;
}

}  // namespace heddle::ir
