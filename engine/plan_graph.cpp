#include "engine/plan_graph.h"

#include <map>
#include <string_view>

#include "ir/text.h"
#include "jit/program.h"

namespace heddle::engine {

namespace {

using base::Json;

/// The lines of one graph in IR text by the name of the first value that each defines.
using Lines = std::map<std::string, std::string, std::less<>>;

/// "%a" of "  %a, %b = topk(%x)"; empty for other lines.
std::string_view defined_by(std::string_view line) {
  if (!line.starts_with("  %")) return {};
  line.remove_prefix(2);
  return line.substr(0, line.find_first_of(", "));
}

/// By the name that each graph prints under.
std::map<std::string, Lines, std::less<>> lines_by_graph(const std::string& text) {
  std::map<std::string, Lines, std::less<>> graphs;
  Lines* lines = nullptr;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    if (line.starts_with("graph @"))
      lines = &graphs[std::string(line.substr(7, line.find('(') - 7))];
    else if (const std::string_view name = defined_by(line); !name.empty() && lines != nullptr)
      lines->emplace(name, line.substr(2));
  }
  return graphs;
}

Json names_of(std::span<const ir::Value> values) {
  Json names = Json::array();
  for (const ir::Value& value : values)
    if (value) names.push_back(value.name());
  return names;
}

std::string text_of(const ir::Node& node, const Lines& lines) {
  if (const auto found = lines.find("%" + node.name()); found != lines.end()) return found->second;
  std::string text = std::string(node.op_name());
  for (const ir::TensorMeta& meta : node.outputs()) text += " " + meta.to_string();
  return text;
}

Json node_json(const ir::Node& node, const Lines& lines) {
  Json names = Json::array();
  Json types = Json::array();
  for (std::uint32_t k = 0; k < node.outputs().size(); ++k) {
    names.push_back(node.value(k).name());
    types.push_back(node.output(k).to_string());
  }
  return {{"name", node.name()},
          {"names", std::move(names)},
          {"types", std::move(types)},
          {"op", node.op_name()},
          {"inputs", names_of(node.inputs())},
          {"after", names_of(node.after())},
          {"region", jit::region_of(node)},
          {"text", text_of(node, lines)}};
}

/// What the caller calls the inputs, by the names of their nodes; those without are left out.
std::map<std::string, std::string, std::less<>> labels_of_inputs(const ir::Graph& graph) {
  std::map<std::string, std::string, std::less<>> labels;
  for (std::size_t k = 0; k < graph.inputs().size(); ++k)
    if (!graph.input_label(k).empty())
      labels.emplace(graph.inputs()[k].node->name(), graph.input_label(k));
  return labels;
}

Json graph_json(const ir::Graph& graph, const std::string& name, const Lines& lines) {
  Json outputs = Json::array();
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    outputs.push_back({{"value", graph.outputs()[k].name()}, {"label", graph.output_label(k)}});
  Json write_backs = Json::array();
  for (const ir::Graph::WriteBack& write : graph.write_backs())
    write_backs.push_back({{"target", write.target.name()}, {"source", write.source.name()}});
  Json nodes = Json::array();
  const auto labels = labels_of_inputs(graph);
  for (const ir::NodePtr& node : graph.nodes()) {
    nodes.push_back(node_json(*node, lines));
    if (const auto label = labels.find(node->name()); label != labels.end())
      nodes.back()["label"] = label->second;
  }
  return {{"name", name},
          {"inputs", names_of(graph.inputs())},
          {"outputs", std::move(outputs)},
          {"write_backs", std::move(write_backs)},
          {"nodes", std::move(nodes)}};
}

}  // namespace

Json graphs_json(const ir::Graph& graph, const ir::NestedGraphs& nested) {
  const auto lines = lines_by_graph(ir::print(graph, {.types = true}));
  static const Lines kNone;
  Json list = Json::array();
  const auto add = [&](const ir::Graph& each, const std::string& name) {
    const auto own = lines.find(name);
    list.push_back(graph_json(each, name, own == lines.end() ? kNone : own->second));
  };
  add(graph, ir::graph_name(graph.name()));
  for (const ir::NestedGraphs::Named& each : nested.all()) add(*each.graph, each.name);
  return list;
}

}  // namespace heddle::engine
