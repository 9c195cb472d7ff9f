// If, Loop and Scan: nodes with nested graphs.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// Runs a nested graph on values for its inputs; returns its outputs.
using RunBody =
    std::function<std::vector<Tensor>(const onnx_format::GraphProto&, std::vector<Value>)>;

/// A value around the node; null when there is none of that name.
using FindValue = std::function<const Value*(std::string_view)>;

struct ControlConverter {
  Converter row;
  Outputs (*convert)(const Node& node, const RunBody& run, const FindValue& find);
};

/// Null when `name` has no nested graphs.
const ControlConverter* find_control(std::string_view name);

}  // namespace heddle::onnx
