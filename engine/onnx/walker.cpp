#include "engine/onnx/walker.h"

#include <algorithm>
#include <fmt/format.h>

#include "engine/onnx/control_flow.h"
#include "engine/onnx/converters.h"
#include "engine/onnx/node_errors.h"
#include "engine/onnx/onnx.pb.h"
#include "engine/onnx/reader.h"
#include "engine/onnx/type_rules.h"
#include "heddle/error.h"
#include "heddle/frontend.h"

namespace heddle::onnx {

using onnx_format::AttributeProto;
using onnx_format::FunctionProto;
using onnx_format::GraphProto;
using onnx_format::NodeProto;

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
    if (const auto found = scope->values.find(name); found != scope->values.end())
      return &found->second;
  }
  return nullptr;
}

namespace {

/// Branches and functions nest no deeper; a function that calls itself ends here.
constexpr int kMaxDepth = 64;

std::string canonical_domain(const std::string& domain) {
  return domain == "ai.onnx" ? std::string() : domain;
}

template <typename Imports>
std::map<std::string, std::int64_t, std::less<>> opsets_of(const Imports& imports) {
  std::map<std::string, std::int64_t, std::less<>> opsets;
  for (const auto& import : imports) opsets[canonical_domain(import.domain())] = import.version();
  return opsets;
}

class Walker {
 public:
  explicit Walker(const Model& model) : model_(model) {
    for (const FunctionProto& function : model.proto->functions())
      functions_.emplace(std::pair(canonical_domain(function.domain()), function.name()),
                         &function);
  }

  TraceResult run(std::span<const Tensor> inputs) {
    const GraphProto& graph = model_.proto->graph();
    Scope scope;
    scope.opsets = opsets_of(model_.proto->opset_import());
    if (!scope.opsets.contains("")) scope.opsets.emplace("", 1);
    for (const auto& [name, tensor] : model_.parameters) {
      const auto packing = model_.packings.find(name);
      if (packing != model_.packings.end())
        scope.values.emplace(name, Value::of_packed(tensor, packing->second));
      else if (model_.texts.contains(name))
        scope.values.emplace(name, Value(tensor).as_text());
      else
        scope.values.emplace(name, is_number(tensor) ? Value::of_constant(tensor) : Value(tensor));
    }
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const std::string& name = model_.inputs[k];
      const auto bits = model_.input_bits.find(name);
      const Value input = Value::of_input(inputs[k], name);
      if (model_.texts.contains(name))
        scope.values.emplace(name, input.as_text());
      else
        scope.values.emplace(
            name, bits == model_.input_bits.end() ? input : input.with_bits(bits->second));
    }
    run_nodes(graph.node(), scope);
    TraceResult result;
    for (const auto& output : graph.output()) {
      const Value& value = read(scope, output.name(), "graph output");
      if (value.is_sequence()) refuse(output.name(), "graph output", "a sequence");
      check_declared(output, value);
      result.tensors.push_back(value.tensor());
      result.names.push_back(output.name());
    }
    return result;
  }

 private:
  /// What the signature says of an output is so.
  static void check_declared(const onnx_format::ValueInfoProto& output, const Value& value) {
    const auto kind_of = [](bool is_maps, bool is_text, DType dtype) {
      return is_maps ? "maps" : is_text ? "strings" : std::string(name_of(dtype));
    };
    const int type = output.type().tensor_type().elem_type();
    const bool has_maps = !output.type().has_tensor_type();
    const DType dtype = has_maps || is_string(type) ? i64 : dtype_of_onnx(type, output.name());
    const std::string declared = kind_of(has_maps, is_string(type), dtype);
    const std::string given = kind_of(value.is_maps(), value.is_text(), value.dtype());
    if (given != declared)
      throw ModelError({.what = "model: declared dtype of output " + output.name(),
                        .where = {},
                        .expected = given,
                        .got = declared});
  }

  const Value& read(const Scope& scope, const std::string& name, const std::string& where) const {
    const Value* value = scope.find(name);
    for (const Scope* at = &scope; at != nullptr && value == nullptr; at = at->outer)
      if (const auto found = at->not_computed.find(name); found != at->not_computed.end())
        throw UnsupportedError({.what = "output " + name,
                                .where = found->second,
                                .expected = "an output that the importer computes",
                                .got = {}});
    if (value == nullptr || !value->defined())
      throw ModelError({.what = "model: value",
                        .where = where,
                        .expected = "a value that an earlier node computed",
                        .got = name});
    return *value;
  }

  /// @param sequences  whether the op takes some
  /// @param texts  whether it takes strings
  std::vector<Value> operands(const NodeProto& proto, const Scope& scope, bool sequences,
                              bool texts) const {
    std::vector<Value> values;
    for (const std::string& name : proto.input()) {
      values.push_back(name.empty() ? Value() : read(scope, name, describe(proto)));
      const Value& value = values.back();
      if (!sequences && value.is_sequence()) refuse(name, describe(proto), "a sequence");
      if (!texts && value.is_text()) refuse(name, describe(proto), "strings");
      if (value.is_maps()) refuse(name, describe(proto), "maps");
    }
    while (!values.empty() && !values.back().defined()) values.pop_back();
    return values;
  }

  [[noreturn]] static void refuse(const std::string& name, const std::string& where,
                                  const char* got) {
    throw UnsupportedError({.what = "model: value " + name,
                            .where = where,
                            .expected = got == std::string_view("strings") ? "numbers" : "a tensor",
                            .got = got});
  }

  /// The node's attributes, references to the function's arguments resolved.
  AttributeMap attributes(const NodeProto& proto, const Scope& scope) const {
    AttributeMap map;
    for (const AttributeProto& attribute : proto.attribute()) {
      const AttributeProto* given = &attribute;
      if (!attribute.ref_attr_name().empty()) {
        const auto found = scope.arguments.find(attribute.ref_attr_name());
        if (found == scope.arguments.end()) continue;
        given = found->second;
      }
      map.emplace(attribute.name(), given);
    }
    return map;
  }

  static void check_sizes(const NodeProto& proto, const Outputs& outputs) {
    for (const Value& output : outputs) {
      if (!output.defined() || output.is_sequence() || !is_uncountable(output.shape())) continue;
      throw ModelError({.what = fmt::format("{}: sizes of the result", proto.op_type()),
                        .where = describe(proto),
                        .expected = "fewer than 2^63 elements",
                        .got = listed(output.shape())});
    }
  }

  static void bind(const NodeProto& proto, const Outputs& outputs, Scope& scope) {
    for (int k = 0; k < proto.output_size(); ++k) {
      if (proto.output(k).empty()) continue;
      const auto at = static_cast<std::size_t>(k);
      if (at < outputs.size() && outputs[at].defined())
        scope.values[proto.output(k)] = outputs[at];
      else
        scope.not_computed[proto.output(k)] = describe(proto);
    }
  }

  template <typename Nodes>
  void run_nodes(const Nodes& nodes, Scope& scope) {
    for (const NodeProto& proto : nodes) {
      const detail::LocationScope location(describe(proto), values_of(proto));
      const Outputs outputs =
          convert_at(proto.op_type(), location.name(), [&] { return convert(proto, scope); });
      check_sizes(proto, outputs);
      bind(proto, outputs, scope);
    }
  }

  /// Indices, sizes and conditions beside what is moved are numbers.
  static void check_texts(const NodeProto& proto, const Converter& row,
                          std::span<const Value> given) {
    if (row.texts != Texts::Moves) return;
    for (std::size_t k = 0; k < given.size(); ++k) {
      const bool is_moved = row.name == "Concat" || (row.name == "Where" ? k != 0 : k == 0);
      if (given[k].is_text() && !is_moved)
        throw ModelError({.what = fmt::format("{}: input {}", proto.op_type(), k),
                          .where = describe(proto),
                          .expected = "numbers",
                          .got = "strings"});
    }
  }

  Outputs convert(const NodeProto& proto, const Scope& scope) {
    const std::string domain = canonical_domain(proto.domain());
    if (const auto found = functions_.find(std::pair(domain, proto.op_type()));
        found != functions_.end())
      return call(*found->second, proto, scope);
    if (const ControlConverter* row = find_control(domain, proto.op_type())) {
      const auto standard = scope.opsets.find("");
      const Node node(proto, row->row, operands(proto, scope, row->row.sequences, false),
                      attributes(proto, scope),
                      standard == scope.opsets.end() ? 1 : standard->second, model_.source);
      const RunBody run([&](const GraphProto& graph, std::vector<Value> given) {
        return run_body(graph, std::move(given), proto, scope);
      });
      return row->convert(node, run, [&](std::string_view name) { return scope.find(name); });
    }
    const Converter* row = find_converter(domain, proto.op_type());
    if (row == nullptr)
      throw UnsupportedError({.what = fmt::format("op {} of domain {}", proto.op_type(),
                                                  domain.empty() ? "ai.onnx" : domain),
                              .where = describe(proto),
                              .expected = "an op that the importer knows",
                              .got = {}});
    const auto opset = scope.opsets.find(domain);
    const std::vector<Value> given =
        operands(proto, scope, domain.empty() && row->sequences, row->texts != Texts::Refuses);
    check_texts(proto, *row, given);
    const Node node(proto, *row, given, attributes(proto, scope),
                    opset == scope.opsets.end() ? 1 : opset->second, model_.source);
    if (domain.empty()) check_operand_types(node);
    Outputs outputs = row->convert(node);
    const bool moves_text =
        row->texts == Texts::Moves && std::ranges::any_of(given, &Value::is_text);
    for (Value& output : outputs) {
      output.note_source(given);
      if (moves_text && output.defined()) output = output.as_text();
    }
    return outputs;
  }

  Scope nested(const Scope& outer, const NodeProto& proto) const {
    Scope scope;
    scope.depth = outer.depth + 1;
    if (scope.depth > kMaxDepth)
      throw ModelError({.what = "model: nesting of functions and branches",
                        .where = describe(proto),
                        .expected = fmt::format("at most {} levels", kMaxDepth),
                        .got = {}});
    return scope;
  }

  Outputs call(const FunctionProto& function, const NodeProto& proto, const Scope& outer) {
    Scope scope = nested(outer, proto);
    scope.opsets = opsets_of(function.opset_import());
    if (!scope.opsets.contains("")) scope.opsets.emplace("", outer.opsets.at(""));
    scope.arguments = attributes(proto, outer);
    const std::vector<Value> given = operands(proto, outer, true, true);
    for (int k = 0; k < function.input_size(); ++k) {
      const auto at = static_cast<std::size_t>(k);
      scope.values[function.input(k)] = at < given.size() ? given[at] : Value();
    }
    run_nodes(function.node(), scope);
    Outputs outputs;
    for (const std::string& name : function.output())
      outputs.push_back(read(scope, name, describe(proto)));
    return outputs;
  }

  /// Runs a nested graph, which sees the values around it, on `given`.
  std::vector<Value> run_body(const GraphProto& graph, std::vector<Value> given,
                              const NodeProto& proto, const Scope& outer) {
    Scope scope = nested(outer, proto);
    scope.outer = &outer;
    scope.opsets = outer.opsets;
    scope.arguments = outer.arguments;
    for (const auto& initializer : graph.initializer())
      scope.values[initializer.name()] = read_constant(initializer, model_.source, describe(proto));
    for (int k = 0; k < graph.input_size() && static_cast<std::size_t>(k) < given.size(); ++k)
      scope.values[graph.input(k).name()] = std::move(given[static_cast<std::size_t>(k)]);
    run_nodes(graph.node(), scope);
    std::vector<Value> outputs;
    for (const auto& output : graph.output())
      outputs.push_back(read(scope, output.name(), describe(proto)));
    return outputs;
  }

  const Model& model_;
  std::map<std::pair<std::string, std::string>, const FunctionProto*> functions_;
};

}  // namespace

TraceResult walk(const Model& model, std::span<const Tensor> inputs) {
  return Walker(model).run(inputs);
}

}  // namespace heddle::onnx
