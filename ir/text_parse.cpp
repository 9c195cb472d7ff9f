// IR text to graphs. The grammar is in text.h.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>

#include "base/closest.h"
#include "heddle/error.h"
#include "ir/analysis/regions.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/text_cursor.h"
#include "ir/text_values.h"

namespace heddle::ir {
namespace {

class FileParser;

/// Parses one graph. The position stands behind "graph @name".
class GraphParser {
 public:
  GraphParser(FileParser& file, TextCursor& cursor, std::string name, std::string prefix,
              const LiteralTable* literals)
      : file_(file),
        cursor_(cursor),
        builder_(std::move(name)),
        prefix_(std::move(prefix)),
        literals_(literals) {
    reserve_names();
  }

  Graph parse() {
    parse_signature();
    cursor_.expect("{");
    while (!cursor_.accept("return")) parse_line();
    parse_return();
    cursor_.expect("}");
    return builder_.finish();
  }

 private:
  /// Every name in the file: what constants without a name may not take.
  void reserve_names() {
    const std::string_view text = cursor_.text();
    for (std::size_t at = text.find("%c"); at != std::string_view::npos;
         at = text.find("%c", at + 1)) {
      std::size_t end = at + 1;
      while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end]))) ++end;
      used_.emplace(text.substr(at + 1, end - at - 1));
    }
  }

  std::size_t here() {
    cursor_.peek();
    return cursor_.position();
  }

  void parse_signature() {
    cursor_.expect("(");
    if (cursor_.accept(")")) return;
    do {
      parse_input();
    } while (cursor_.accept(","));
    cursor_.expect(")");
  }

  void parse_input() {
    const std::size_t start = here();
    const std::string name(cursor_.name('%', "an input"));
    if (!cursor_.accept(":"))
      cursor_.fail_at(start, "type of input %" + name, "a type, such as f32[s0, 4]", "none");
    const bool is_parameter = cursor_.peek_word() == "param" && cursor_.accept("param");
    const bool is_donated =
        !is_parameter && cursor_.peek_word() == "donated" && cursor_.accept("donated");
    const TensorMeta meta = parse_type(cursor_);
    std::string label = cursor_.peek() == '"' ? cursor_.string() : "";
    builder_.context.location = location(start);
    const Value value =
        is_parameter ? builder_.parameter(meta, parameter_value(name, meta, start), name, label)
                     : builder_.input(meta, name, label, is_donated);
    define(name, value, start);
  }

  LiteralPtr parameter_value(const std::string& name, const TensorMeta& meta, std::size_t start) {
    if (!literals_) return nullptr;
    const auto found = literals_->find(prefix_ + name);
    if (found == literals_->end()) return nullptr;
    const Sizes& sizes = found->second->sizes();
    const TensorMeta got =
        TensorMeta::of(found->second->dtype(), Dims(sizes.begin(), sizes.end()), meta.device);
    if (got.dtype != meta.dtype || got.sizes != meta.sizes)
      cursor_.fail_at(start, "value of parameter %" + name, meta.to_string(), got.to_string());
    return found->second;
  }

  void parse_line() {
    if (cursor_.peek() == '%') return parse_node();
    if (cursor_.accept("assume")) return parse_assumption();
    if (cursor_.accept("write_back")) return parse_write_back();
    if (find_op(cursor_.peek_word()) != nullptr) {
      parse_call({});
      return;
    }
    cursor_.fail("a node, assume, write_back or return");
  }

  void parse_assumption() {
    const std::size_t start = here();
    base::Predicate predicate = parse_predicate(cursor_);
    std::string reason = cursor_.peek() == '"' ? cursor_.string() : "";
    builder_.assume({std::move(predicate), std::move(reason), location(start)});
  }

  void parse_write_back() {
    const std::size_t start = here();
    const Value target = parse_value();
    if (target.node->op_name() != "input" && target.node->op_name() != "param")
      cursor_.fail_at(start, "write_back", "an input", target.name());
    cursor_.expect("=");
    builder_.write_back(target, parse_value());
  }

  void parse_return() {
    if (cursor_.peek() != '%') return;
    do {
      const Value value = parse_value();
      builder_.output(value, cursor_.peek() == '"' ? cursor_.string() : "");
    } while (cursor_.accept(","));
  }

  Value parse_value() {
    const std::size_t start = here();
    const std::string name(cursor_.name('%', "a value"));
    const auto found = values_.find(name);
    if (found != values_.end()) return found->second;
    cursor_.fail_at(start, "undefined value %" + name, "", "");
  }

  void parse_node() {
    std::vector<std::pair<std::string, std::size_t>> names;
    do {
      const std::size_t start = here();
      names.emplace_back(cursor_.name('%', "a value"), start);
      if (values_.contains(names.back().first))
        cursor_.fail_at(start, "%" + names.back().first + " is defined twice", "", "");
    } while (cursor_.accept(","));
    cursor_.expect("=");
    const Node* node = parse_call(names);
    for (std::uint32_t k = 0; k < names.size(); ++k)
      define(names[k].first, node->value(k), names[k].second);
  }

  const Node* parse_call(const std::vector<std::pair<std::string, std::size_t>>& names) {
    const std::size_t start = here();
    const OpDef& op = parse_op();
    Attrs attrs;
    std::vector<Operand> operands;
    if (op.name == "const") {
      attrs.emplace("value", parse_literal(cursor_, literals_));
    } else {
      operands = parse_operands();
      if (cursor_.peek() == '{') attrs = parse_attrs(op);
    }
    GraphBuilder::Context context;
    if (cursor_.accept("@")) context.annotations = parse_annotations(cursor_);
    if (cursor_.accept("after")) context.after = parse_after();
    context.location = location(start);
    for (const auto& [name, at] : names) context.names.push_back(name);
    const std::optional<std::vector<TensorMeta>> types = parse_types();
    if (types) name_unbacked(*types);
    const std::vector<Value> inputs = make_inputs(operands, context);
    builder_.context = std::move(context);
    const Node* node = builder_.call(op, inputs, std::move(attrs));
    builder_.context = {};
    check_results(*node, names.size(), types, start);
    return node;
  }

  const OpDef& parse_op() {
    const std::size_t start = here();
    std::string name(cursor_.word("an op"));
    if (cursor_.accept("::")) name.append("::").append(cursor_.word("the op's name behind '::'"));
    const OpDef* op = find_op(name);
    if (op && name != "input" && name != "param") return *op;
    try {
      op_named(name);
    } catch (const UnsupportedError& error) {
      Error::Parts parts = error.parts();
      parts.where = cursor_.where(start);
      throw UnsupportedError(std::move(parts));
    }
    cursor_.fail_at(start, "'" + name + "' stands in the signature of a graph only", "", "");
  }

  /// A value, an absent one, or a constant still to be made.
  struct Operand {
    Value value;
    LiteralPtr constant;
  };

  std::vector<Operand> parse_operands() {
    std::vector<Operand> operands;
    cursor_.expect("(");
    if (cursor_.accept(")")) return operands;
    do {
      operands.push_back(parse_operand());
    } while (cursor_.accept(","));
    cursor_.expect(")");
    return operands;
  }

  Operand parse_operand() {
    if (cursor_.peek() == '%') return {parse_value(), nullptr};
    if (cursor_.accept("none")) return {};
    return {{}, parse_literal(cursor_, literals_)};
  }

  /// Constants in an operand list have the annotations and the place of the node that reads them.
  std::vector<Value> make_inputs(const std::vector<Operand>& operands,
                                 const GraphBuilder::Context& reader) {
    std::vector<Value> inputs;
    for (const Operand& operand : operands) {
      inputs.push_back(operand.value);
      if (!operand.constant) continue;
      builder_.context = {reader.annotations, {}, reader.location, free_constant_name(), {}};
      inputs.back() = builder_.call("const", {}, {{"value", operand.constant}})->value();
    }
    return inputs;
  }

  std::string free_constant_name() {
    std::string name;
    do {
      name = fmt::format("c{}", next_constant_++);
    } while (used_.contains(name));
    return name;
  }

  Attrs parse_attrs(const OpDef& op) {
    Attrs attrs;
    cursor_.expect("{");
    if (cursor_.accept("}")) return attrs;
    do {
      const std::size_t start = here();
      const std::string name(cursor_.word("an attribute"));
      const AttrKind kind = attr_kind(op, name, start);
      cursor_.expect("=");
      Attr value = parse_attr(cursor_, kind, literals_);
      if (auto* ref = std::get_if<GraphRef>(&value)) resolve(*ref, start);
      if (!attrs.emplace(name, std::move(value)).second)
        cursor_.fail_at(start, "attribute '" + name + "' is given twice", "", "");
    } while (cursor_.accept(","));
    cursor_.expect("}");
    return attrs;
  }

  AttrKind attr_kind(const OpDef& op, const std::string& name, std::size_t start) {
    std::vector<std::string_view> known;
    for (const AttrSpec& spec : op.attrs) {
      if (spec.name == name) return spec.kind;
      known.push_back(spec.name);
    }
    const std::string_view near = base::closest(name, known);
    cursor_.fail_at(start, fmt::format("unknown attribute '{}' of {}", name, op.name),
                    near.empty() ? "" : fmt::format("'{}'", near), "");
  }

  std::vector<Value> parse_after() {
    std::vector<Value> values;
    cursor_.expect("(");
    do {
      values.push_back(parse_value());
    } while (cursor_.accept(","));
    cursor_.expect(")");
    return values;
  }

  std::optional<std::vector<TensorMeta>> parse_types() {
    if (!cursor_.accept(":")) return {};
    std::vector<TensorMeta> types;
    do {
      types.push_back(parse_type(cursor_));
    } while (cursor_.accept(","));
    return types;
  }

  /// Inference is going to number new unbacked sizes from the first that these types mention and no
  /// value before does.
  void name_unbacked(const std::vector<TensorMeta>& types) {
    std::vector<base::Symbol> symbols;
    for (const TensorMeta& type : types)
      for (const SymExpr& size : type.sizes) size.collect_symbols(symbols);
    for (const base::Symbol& symbol : symbols) {
      if (symbol.kind != base::Symbol::Kind::Unbacked || unbacked_.contains(symbol.id)) continue;
      builder_.env().next_unbacked_ = symbol.id;
      break;
    }
  }

  void check_results(const Node& node, std::size_t names,
                     const std::optional<std::vector<TensorMeta>>& types, std::size_t start) {
    for (const TensorMeta& meta : node.outputs()) note_unbacked(meta);
    builder_.env().next_unbacked_ = unbacked_.empty() ? 0 : *unbacked_.rbegin() + 1;
    if (names == 0 && gives_token(node)) return;
    if (names != node.outputs().size())
      cursor_.fail_at(start, fmt::format("results of {}", node.op_name()),
                      std::to_string(node.outputs().size()), std::to_string(names));
    if (!types) return;
    if (types->size() != names)
      cursor_.fail_at(start, fmt::format("types of the results of {}", node.op_name()),
                      std::to_string(names), std::to_string(types->size()));
    for (std::size_t k = 0; k < names; ++k)
      if (!(*types)[k].same_layout(node.output(k)))
        cursor_.fail_at(start, "type of %" + node.names()[k], node.output(k).to_string(),
                        (*types)[k].to_string());
  }

  void note_unbacked(const TensorMeta& meta) {
    std::vector<base::Symbol> symbols;
    for (const SymExpr& size : meta.sizes) size.collect_symbols(symbols);
    for (const base::Symbol& symbol : symbols)
      if (symbol.kind == base::Symbol::Kind::Unbacked) unbacked_.insert(symbol.id);
  }

  void define(const std::string& name, const Value& value, std::size_t start) {
    if (!values_.emplace(name, value).second)
      cursor_.fail_at(start, "%" + name + " is defined twice", "", "");
    note_unbacked(value.meta());
  }

  void resolve(GraphRef& ref, std::size_t start);

  /// Errors of inference name the place in the text.
  base::Location location(std::size_t position) const { return {cursor_.where(position), 0}; }

  FileParser& file_;
  TextCursor& cursor_;
  GraphBuilder builder_;
  std::string prefix_;
  const LiteralTable* literals_;
  std::map<std::string, Value, std::less<>> values_;
  std::set<std::string, std::less<>> used_;
  std::set<std::uint32_t> unbacked_;
  std::uint32_t next_constant_ = 0;
};

/// Finds the graphs of a file, then parses the entry and those it names.
class FileParser {
 public:
  FileParser(std::string_view text, std::string_view file, const LiteralTable* literals)
      : cursor_(text, file), literals_(literals) {}

  Graph parse() {
    while (!cursor_.at_end()) find_graph();
    if (entry_.empty()) cursor_.fail("'graph'");
    Graph graph = *graph_named(entry_, "");
    for (const auto& [name, found] : graphs_)
      if (!found.graph)
        cursor_.fail_at(found.position, "graph @" + name + " is named by no node", "", "");
    return graph;
  }

  std::shared_ptr<const Graph> nested(const std::string& name, std::size_t start) {
    const auto found = graphs_.find(name);
    if (found == graphs_.end()) cursor_.fail_at(start, "undefined graph @" + name, "", "");
    if (found->second.open) cursor_.fail_at(start, "graph @" + name + " contains itself", "", "");
    return graph_named(name, name + ".");
  }

 private:
  struct Found {
    std::size_t position = 0;  ///< behind the name
    bool open = false;
    std::shared_ptr<const Graph> graph;
  };

  void find_graph() {
    cursor_.expect("graph");
    const std::size_t start = (cursor_.peek(), cursor_.position());
    const std::string name(cursor_.name('@', "the name of a graph"));
    if (!graphs_.emplace(name, Found{cursor_.position(), false, nullptr}).second)
      cursor_.fail_at(start, "graph @" + name + " is defined twice", "", "");
    if (entry_.empty()) entry_ = name;
    skip_signature();
    if (cursor_.peek() != '{') cursor_.fail("'{'");
    cursor_.skip_block();
  }

  void skip_signature() {
    if (cursor_.peek() != '(') cursor_.fail("'('");
    int depth = 0;
    do {
      if (cursor_.at_end()) cursor_.fail("')'");
      if (cursor_.peek() == '"') {
        cursor_.string();
        continue;
      }
      if (cursor_.peek() == '(') ++depth;
      if (cursor_.peek() == ')') --depth;
      cursor_.seek(cursor_.position() + 1);
    } while (depth > 0);
  }

  std::shared_ptr<const Graph> graph_named(const std::string& name, const std::string& prefix) {
    Found& found = graphs_.at(name);
    if (found.graph) return found.graph;
    if (open_ == kMaxNesting)
      cursor_.fail_at(found.position, "graph @" + name,
                      fmt::format("at most {} graphs in each other", kMaxNesting), "one more");
    ++open_;
    const std::size_t resume = cursor_.position();
    found.open = true;
    cursor_.seek(found.position);
    found.graph =
        std::make_shared<const Graph>(GraphParser(*this, cursor_, name, prefix, literals_).parse());
    found.open = false;
    --open_;
    cursor_.seek(resume);
    return found.graph;
  }

  /// What walks graphs calls itself for each that is nested: more would not fit on a thread's stack.
  static constexpr int kMaxNesting = 200;

  TextCursor cursor_;
  int open_ = 0;  ///< graphs that are being parsed, in each other
  const LiteralTable* literals_;
  std::string entry_;
  std::map<std::string, Found> graphs_;
};

void GraphParser::resolve(GraphRef& ref, std::size_t start) {
  ref.graph = file_.nested(ref.name.substr(1), start);
}

}  // namespace

Graph parse(std::string_view text, const LiteralTable* literals, std::string_view file) {
  return FileParser(text, file, literals).parse();
}

}  // namespace heddle::ir
