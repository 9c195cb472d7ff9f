#include "ir/graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "ir/graph_data.h"
#include "ir/op.h"
#include "ir/structural_key.h"

namespace heddle::ir {

const TensorMeta& Value::meta() const { return node->output(index); }

std::string Value::name() const { return "%" + node->names()[index]; }

bool is_donated(const Value& value) {
  return value.node->op_name() == "input" && value.node->has("donated");
}

std::string_view Node::op_name() const { return op_->name; }

bool Node::is_argument() const { return op_name() == "input" || op_name() == "param"; }

const std::string& Node::name() const {
  static const std::string kNone;
  return names_->empty() ? kNone : names_->front();
}

const Attr& Node::attr(std::string_view name) const {
  const auto found = attrs().find(name);
  HD_CHECK(found != attrs().end(), std::string(op_->name) + "." + std::string(name));
  return found->second;
}

namespace {

template <typename T>
const T& typed(const Node& node, std::string_view name) {
  const T* value = std::get_if<T>(&node.attr(name));
  HD_CHECK(value != nullptr, std::string(node.op_name()) + "." + std::string(name));
  return *value;
}

}  // namespace

bool Node::flag(std::string_view name) const { return typed<bool>(*this, name); }
std::int64_t Node::integer(std::string_view name) const { return typed<std::int64_t>(*this, name); }
double Node::number(std::string_view name) const { return typed<double>(*this, name); }
const std::string& Node::string(std::string_view name) const {
  return typed<std::string>(*this, name);
}
DType Node::dtype(std::string_view name) const { return typed<DType>(*this, name); }
const std::vector<std::int64_t>& Node::ints(std::string_view name) const {
  return typed<std::vector<std::int64_t>>(*this, name);
}
const Dims& Node::symints(std::string_view name) const { return typed<Dims>(*this, name); }
const Literal& Node::literal(std::string_view name) const {
  return *typed<LiteralPtr>(*this, name);
}
const Graph& Node::graph(std::string_view name) const {
  return *typed<GraphRef>(*this, name).graph;
}

Graph::Graph() {
  static const auto kEmpty = std::make_shared<const Data>();
  data_ = kEmpty;
}

const std::string& Graph::name() const { return data_->name; }
std::span<const NodePtr> Graph::nodes() const { return data_->nodes; }
std::span<const Value> Graph::inputs() const { return data_->inputs; }
std::span<const Value> Graph::outputs() const { return data_->outputs; }
const std::string& Graph::input_label(std::size_t k) const { return data_->input_labels[k]; }
const std::string& Graph::output_label(std::size_t k) const { return data_->output_labels[k]; }
std::span<const Assumption> Graph::assumptions() const { return data_->assumptions; }
std::span<const Graph::WriteBack> Graph::write_backs() const { return data_->write_backs; }

const Literal* Graph::parameter(const Node* param) const {
  const auto found = data_->parameters.find(param);
  return found == data_->parameters.end() ? nullptr : found->second.get();
}

namespace {

struct ExprHash {
  std::size_t operator()(const SymExpr& expr) const { return expr.hash(); }
};

std::uint32_t next_symbol(const Graph& graph, base::Symbol::Kind kind) {
  std::unordered_set<SymExpr, ExprHash> seen;
  std::vector<base::Symbol> symbols;
  const auto collect = [&](const SymExpr& expr) {
    if (expr.mentions(kind) && seen.insert(expr).second) expr.collect_symbols(symbols);
  };
  for (const NodePtr& node : graph.nodes()) {
    for (const TensorMeta& meta : node->outputs()) {
      for (const SymExpr& size : meta.sizes) collect(size);
      for (const SymExpr& stride : meta.strides) collect(stride);
    }
  }
  std::uint32_t next = 0;
  for (const base::Symbol& symbol : symbols)
    if (symbol.kind == kind) next = std::max(next, symbol.id + 1);
  return next;
}

}  // namespace

base::Hash128 Graph::structural_hash() const {
  std::call_once(data_->hashed, [&] { data_->hash = structural_key(*this, {}); });
  return data_->hash;
}

std::uint32_t Graph::next_size_symbol() const {
  return next_symbol(*this, base::Symbol::Kind::Size);
}
std::uint32_t Graph::next_unbacked_symbol() const {
  std::call_once(data_->counted,
                 [&] { data_->next_unbacked = next_symbol(*this, base::Symbol::Kind::Unbacked); });
  return data_->next_unbacked;
}

}  // namespace heddle::ir
