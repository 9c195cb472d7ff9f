// If, Loop, Scan and FlexAttention: nodes with nested graphs.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// Runs a nested graph on values for its inputs.
class RunBody {
 public:
  using Run = std::function<std::vector<Value>(const onnx_format::GraphProto&, std::vector<Value>)>;
  explicit RunBody(Run run) : run_(std::move(run)) {}

  std::vector<Value> values(const onnx_format::GraphProto& graph, std::vector<Value> given) const {
    return run_(graph, std::move(given));
  }
  /// Its outputs, none of which is a sequence. @throws UnsupportedError.
  std::vector<Tensor> operator()(const onnx_format::GraphProto& graph,
                                 std::vector<Value> given) const;

 private:
  Run run_;
};

/// A value around the node; null when there is none of that name.
using FindValue = std::function<const Value*(std::string_view)>;

struct ControlConverter {
  Converter row;
  Outputs (*convert)(const Node& node, const RunBody& run, const FindValue& find);
};

/// Null when `name` of `domain` has no nested graphs.
const ControlConverter* find_control(std::string_view domain, std::string_view name);

Outputs convert_if(const Node& node, const RunBody& run, const FindValue& find);
Outputs convert_loop(const Node& node, const RunBody& run, const FindValue& find);
Outputs convert_flex_attention(const Node& node, const RunBody& run, const FindValue& find);

}  // namespace heddle::onnx
