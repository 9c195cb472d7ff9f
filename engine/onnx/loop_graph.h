// What the graph of a loop says of it.
#pragma once

#include <optional>
#include <string>

#include "engine/onnx/control_flow.h"

namespace heddle::onnx {

/// Whether the body gives its condition on as it got it, or gives true.
bool condition_stays(const Node& node, const onnx_format::GraphProto& body);
/// How often a loop runs that its own condition ends, where the condition counts.
std::optional<SymInt> known_trips(const Node& node, const onnx_format::GraphProto& body,
                                  const FindValue& find);
/// Whether a loop runs at least once, as far as tracing tells.
bool surely_runs(const Node& node);
/// Whether the body hands carried value k on as it got it.
bool stays(const onnx_format::GraphProto& body, std::size_t k);
/// Whether all that the body does with carried sequence `k` is to append one element.
bool is_appended_to(const onnx_format::GraphProto& body, std::size_t k);

}  // namespace heddle::onnx
