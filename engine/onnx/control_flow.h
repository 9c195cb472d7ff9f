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

struct ControlConverter {
  Converter row;
  Outputs (*convert)(const Node& node, const RunBody& run);
};

/// Null when `name` has no nested graphs.
const ControlConverter* find_control(std::string_view name);

}  // namespace heddle::onnx
