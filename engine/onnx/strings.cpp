// The strings of a model.
#include <algorithm>
#include <array>
#include <set>

#include "engine/onnx/onnx.pb.h"
#include "engine/onnx/reader.h"
#include "heddle/error.h"

namespace heddle::onnx {

using onnx_format::AttributeProto;
using onnx_format::GraphProto;
using onnx_format::NodeProto;
using onnx_format::TensorProto;

namespace {

class Collector {
 public:
  explicit Collector(const onnx_format::ModelProto& model) {
    for (const auto& function : model.functions()) functions_.insert(function.name());
    take(model.graph());
    for (const auto& function : model.functions())
      for (const NodeProto& node : function.node()) take(node);
  }
  const std::set<std::string>& strings() const { return strings_; }

 private:
  void take(const GraphProto& graph) {
    for (const TensorProto& initializer : graph.initializer()) take(initializer);
    for (const NodeProto& node : graph.node()) take(node);
  }
  /// A function may hand on its arguments under other names.
  void take(const NodeProto& node) {
    const bool is_call = functions_.contains(node.op_type());
    for (const AttributeProto& attribute : node.attribute()) take(attribute, is_call);
    if (node.op_type() == "LabelEncoder" || node.op_type() == "CategoryMapper")
      strings_.insert(kUnusedLabel);
  }
  /// Whether an attribute of strings holds elements, and not the name of a mode.
  static bool holds_elements(const std::string& name) {
    static constexpr std::array kNames{"cats_strings",   "classes_strings", "classlabels_strings",
                                       "default_string", "pool_strings",    "keys_strings",
                                       "value_string",   "value_strings",   "values_strings"};
    return std::ranges::find(kNames, name) != kNames.end();
  }
  void take(const AttributeProto& attribute, bool is_argument) {
    if (attribute.has_g()) take(attribute.g());
    for (const GraphProto& graph : attribute.graphs()) take(graph);
    if (attribute.has_t()) take(attribute.t());
    if (!is_argument && !holds_elements(attribute.name())) return;
    strings_.insert(attribute.strings().begin(), attribute.strings().end());
    if (attribute.has_s()) strings_.insert(attribute.s());
  }
  void take(const TensorProto& tensor) {
    if (is_string(tensor.data_type()))
      strings_.insert(tensor.string_data().begin(), tensor.string_data().end());
  }

  std::set<std::string> functions_;
  std::set<std::string> strings_;
};

}  // namespace

StringTable strings_of(const onnx_format::ModelProto& model) {
  const Collector collector(model);
  const std::set<std::string>& found = collector.strings();
  if (found.empty()) return nullptr;
  return std::make_shared<const std::vector<std::string>>(found.begin(), found.end());
}

std::int64_t TensorSource::code_of(std::string_view text) const {
  if (const std::int64_t code = strings == nullptr ? -1 : place_of(*strings, text); code >= 0)
    return code;
  throw ModelError({.what = "model: a string",
                    .where = {},
                    .expected = "an element of a tensor, a label, a key or a category",
                    .got = std::string(text)});
}

}  // namespace heddle::onnx
