// Graphs as text. The grammar is in text.h.
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <set>
#include <unordered_map>

#include "ir/analysis/unbacked.h"
#include "ir/nested_graphs.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/text_number.h"

namespace heddle::ir {
namespace {

constexpr std::int64_t kMaxInlineElements = 16;

template <typename Range, typename F>
std::string joined(const Range& range, F&& text) {
  std::string result;
  for (const auto& item : range) {
    if (!result.empty()) result += ", ";
    result += text(item);
  }
  return result;
}

std::string sizes_text(const Sizes& sizes) {
  return "[" + joined(sizes, [](std::int64_t size) { return std::to_string(size); }) + "]";
}

/// "1.0: f32", "[1, 2]: i64", "[1, 2, 3, 4]: i64[2, 2]".
std::string inline_text(const Literal& literal) {
  const std::string dtype(name_of(literal.dtype()));
  if (literal.rank() == 0) return element_text(literal, 0) + ": " + dtype;
  std::string elements;
  for (std::int64_t k = 0; k < literal.count(); ++k)
    elements += (k ? ", " : "") + element_text(literal, k);
  return "[" + elements + "]: " + dtype + (literal.rank() == 1 ? "" : sizes_text(literal.sizes()));
}

std::string named_text(const Literal& literal, const std::string& name) {
  return fmt::format("@{} #{}: {}{}", name, literal.checksum().hex(), name_of(literal.dtype()),
                     sizes_text(literal.sizes()));
}

bool is_const(const Node& node) { return node.op_name() == "const"; }
bool is_large(const Literal& literal) { return literal.count() > kMaxInlineElements; }

/// Names that the builder gives to constants nobody named.
bool is_generated_constant_name(std::string_view name) {
  return name.size() > 1 && name[0] == 'c' &&
         std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::string annotations_text(const Annotations& annotations);

std::string annotation_text(const Annotation& annotation) {
  const auto& value = annotation.value;
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const double* number = std::get_if<double>(&value)) return float_text(f64, *number);
  if (const auto* text = std::get_if<std::string>(&value)) return in_quotes(*text);
  return annotations_text(*std::get<std::shared_ptr<const Annotations>>(value));
}

std::string annotations_text(const Annotations& annotations) {
  return "{" +
         joined(annotations,
                [](const auto& entry) {
                  return entry.first + " = " + annotation_text(entry.second);
                }) +
         "}";
}

/// Scalar constants that print inside the operand lists that read them: nobody named, ordered or
/// returned them, and they carry the annotations of all their readers.
std::set<const Node*> inlined_constants(const Graph& graph) {
  std::set<const Node*> used;
  std::set<const Node*> lines;
  for (const NodePtr& node : graph.nodes()) {
    for (const Value& input : node->inputs()) {
      if (!input) continue;
      used.insert(input.node);
      if (input.node->annotations() != node->annotations()) lines.insert(input.node);
    }
    for (const Value& first : node->after()) lines.insert(first.node);
  }
  for (const Value& output : graph.outputs()) lines.insert(output.node);
  for (const Graph::WriteBack& write : graph.write_backs()) lines.insert(write.source.node);
  std::set<const Node*> result;
  for (const NodePtr& node : graph.nodes())
    if (is_const(*node) && node->output().rank() == 0 && node->after().empty() &&
        is_generated_constant_name(node->name()) && used.contains(node.get()) &&
        !lines.contains(node.get()))
      result.insert(node.get());
  return result;
}

class Printer {
 public:
  Printer(const Graph& entry, const PrintOptions& options)
      : entry_(entry), options_(options), nested_(entry) {}

  std::string file() {
    print_graph(entry_, graph_name(entry_.name()), "");
    for (const NestedGraphs::Named& nested : nested_.all()) {
      out_ += "\n";
      print_graph(*nested.graph, nested.name, nested.name + ".");
    }
    return std::move(out_);
  }

 private:
  void print_graph(const Graph& graph, const std::string& name, const std::string& prefix) {
    prefix_ = prefix;
    inlined_ = inlined_constants(graph);
    out_ += "graph @" + name + "(" + signature(graph) + ") {\n";
    for (const Assumption& assumption : graph.assumptions()) {
      out_ += "  assume " + assumption.predicate.to_string();
      if (!assumption.reason.empty()) out_ += " " + in_quotes(assumption.reason);
      out_ += "\n";
    }
    for (const NodePtr& node : graph.nodes())
      if (!node->is_argument() && !inlined_.contains(node.get())) print_node(*node);
    for (const Graph::WriteBack& write : graph.write_backs())
      out_ += fmt::format("  write_back {} = {}\n", write.target.name(), write.source.name());
    out_ += "  return";
    for (std::size_t k = 0; k < graph.outputs().size(); ++k) {
      out_ += (k ? ", " : " ") + graph.outputs()[k].name();
      if (!graph.output_label(k).empty()) out_ += " " + in_quotes(graph.output_label(k));
    }
    out_ += "\n}\n";
  }

  /// Positions of the inputs as they were declared: a parameter before the arguments that follow it.
  static std::vector<std::size_t> declared(const Graph& graph) {
    std::map<const Node*, std::size_t> age;
    for (const NodePtr& node : graph.nodes())
      if (node->is_argument()) age.emplace(node.get(), age.size());
    const auto inputs = graph.inputs();
    const auto is_param = [&](std::size_t k) { return inputs[k].node->op_name() == "param"; };
    std::size_t arguments = 0;
    while (arguments < inputs.size() && !is_param(arguments)) ++arguments;
    std::vector<std::size_t> oldest(arguments + 1, age.size());  // of argument k and those after it
    for (std::size_t k = arguments; k-- > 0;)
      oldest[k] = std::min(oldest[k + 1], age[inputs[k].node]);
    std::vector<std::size_t> order;
    std::size_t param = arguments;
    for (std::size_t k = 0; k < arguments; ++k) {
      for (; param < inputs.size() && age[inputs[param].node] < oldest[k]; ++param)
        order.push_back(param);
      order.push_back(k);
    }
    for (; param < inputs.size(); ++param) order.push_back(param);
    return order;
  }

  static std::string signature(const Graph& graph) {
    std::string text;
    for (const std::size_t k : declared(graph)) {
      const Value& input = graph.inputs()[k];
      if (!text.empty()) text += ", ";
      text += input.name() + ": ";
      if (input.node->op_name() == "param") text += "param ";
      if (is_donated(input)) text += "donated ";
      text += input.meta().to_string();
      if (!graph.input_label(k).empty()) text += " " + in_quotes(graph.input_label(k));
    }
    return text;
  }

  void print_node(const Node& node) {
    out_ += "  " + joined(node.names(), [](const std::string& name) { return "%" + name; });
    if (!node.names().empty()) out_ += " = ";
    out_ += is_const(node) ? "const " + constant_text(node) : call_text(node);
    if (!node.annotations().empty()) out_ += " @" + annotations_text(node.annotations());
    if (!node.after().empty())
      out_ += " after(" + joined(node.after(), [](const Value& v) { return v.name(); }) + ")";
    if (!is_const(node) && (options_.types || !unbacked_defined(node).empty()))
      out_ += " : " + joined(node.outputs(), [](const TensorMeta& m) { return m.to_string(); });
    if (options_.locations && !node.location().empty())
      out_ += "  // " + node.location().to_string();
    out_ += "\n";
  }

  std::string constant_text(const Node& node) const {
    const Literal& literal = node.literal("value");
    return is_large(literal) ? named_text(literal, prefix_ + node.name()) : inline_text(literal);
  }

  std::string call_text(const Node& node) {
    std::string text(node.op_name());
    text += "(" + joined(node.inputs(), [&](const Value& v) { return operand_text(v); }) + ")";
    std::string attrs;
    for (const AttrSpec& spec : node.op().attrs) {
      const Attr& value = node.attr(spec.name);
      const bool shown = !spec.default_value || spec.name == "axis";
      if (!shown && equal(value, *spec.default_value)) continue;
      attrs += (attrs.empty() ? "" : ", ") + std::string(spec.name) + " = " + attr_text(value);
    }
    return attrs.empty() ? text : text + " {" + attrs + "}";
  }

  std::string operand_text(const Value& value) const {
    if (!value) return "none";
    return inlined_.contains(value.node) ? inline_text(value.node->literal("value")) : value.name();
  }

  std::string attr_text(const Attr& attr) {
    return std::visit([&](const auto& value) { return text_of(value); }, attr);
  }
  std::string text_of(bool value) { return value ? "true" : "false"; }
  std::string text_of(std::int64_t value) { return std::to_string(value); }
  std::string text_of(double value) { return float_text(f64, value); }
  std::string text_of(const std::string& value) { return in_quotes(value); }
  std::string text_of(DType value) { return std::string(name_of(value)); }
  std::string text_of(const SymExpr& value) { return value.to_string(); }
  std::string text_of(const LiteralPtr& value) { return inline_text(*value); }
  std::string text_of(const GraphRef& value) {
    return "@" + nested_.name_of(value.graph.get(), value.name);
  }
  template <typename T>
  std::string text_of(const std::vector<T>& values) {
    return "[" + joined(values, [&](const T& value) { return text_of(value); }) + "]";
  }

  const Graph& entry_;
  const PrintOptions& options_;
  const NestedGraphs nested_;
  std::string out_;
  std::string prefix_;
  std::set<const Node*> inlined_;
};

void collect_literals(const Graph& graph, const std::string& prefix, LiteralTable& table) {
  for (const NodePtr& node : graph.nodes()) {
    for (const auto& [name, attr] : node->attrs()) {
      const auto* literal = std::get_if<LiteralPtr>(&attr);
      if (literal && is_large(**literal)) table[prefix + node->name()] = *literal;
    }
    if (const Literal* value = graph.parameter(node.get()))
      table[prefix + node->name()] = std::make_shared<const Literal>(*value);
  }
}

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
  return Printer(graph, options).file();
}

LiteralTable named_literals(const Graph& graph) {
  LiteralTable table;
  collect_literals(graph, "", table);
  const NestedGraphs nested_graphs(graph);
  for (const NestedGraphs::Named& nested : nested_graphs.all())
    collect_literals(*nested.graph, nested.name + ".", table);
  return table;
}

}  // namespace heddle::ir
