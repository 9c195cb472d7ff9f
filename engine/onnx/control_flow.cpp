#include "engine/onnx/control_flow.h"

#include <algorithm>
#include <utility>

#include "engine/onnx/nested_values.h"
#include "engine/onnx/onnx.pb.h"
#include "heddle/control_flow.h"
#include "heddle/error.h"

namespace heddle::onnx {

using onnx_format::GraphProto;

namespace {

Tensor reversed(const Tensor& tensor, bool reverse) {
  return reverse ? one("reverse", {tensor}, {{"axes", Ints{0}}}) : tensor;
}

std::int64_t entry(const Ints& list, std::size_t k) { return k < list.size() ? list[k] : 0; }

struct ScanParts {
  const GraphProto& body;
  std::size_t carried;
  Ints axes, directions, result_axes, result_directions;
};

std::vector<Tensor> scan_once(const Node& node, const ScanParts& parts,
                              const std::vector<Tensor>& inputs, const RunBody& run) {
  const auto middle = inputs.begin() + static_cast<std::ptrdiff_t>(parts.carried);
  std::vector<Tensor> start(inputs.begin(), middle);
  std::vector<Tensor> scanned(middle, inputs.end());
  for (std::size_t k = 0; k < scanned.size(); ++k)
    scanned[k] =
        reversed(moved_axis(scanned[k], node.axis(entry(parts.axes, k), scanned[k].rank()), 0),
                 entry(parts.directions, k) != 0);
  const auto body = [&](const std::vector<Tensor>& carry, const std::vector<Tensor>& slices) {
    std::vector<Value> given(carry.begin(), carry.end());
    given.insert(given.end(), slices.begin(), slices.end());
    const std::vector<Tensor> made = run(parts.body, std::move(given));
    const auto end = made.begin() + static_cast<std::ptrdiff_t>(parts.carried);
    return std::pair(std::vector<Tensor>(made.begin(), end), std::vector<Tensor>(end, made.end()));
  };
  auto [results, stacked] = scan(std::move(start), std::move(scanned), body);
  for (std::size_t k = 0; k < stacked.size(); ++k)
    results.push_back(moved_axis(reversed(stacked[k], entry(parts.result_directions, k) != 0), 0,
                                 node.axis(entry(parts.result_axes, k), stacked[k].rank())));
  return results;
}

Outputs convert_scan(const Node& node, const RunBody& run, const FindValue&) {
  const GraphProto& body = node.graph("body");
  check_types(node, body);
  const std::int64_t wanted = node.integer("num_scan_inputs", 0);
  const std::size_t first = node.opset() < 9 ? 1 : 0;
  if (wanted < 1 || wanted > static_cast<std::int64_t>(node.input_count() - first))
    node.malformed("num_scan_inputs", "1 to the number of inputs", std::to_string(wanted));
  const auto scanned = static_cast<std::size_t>(wanted);
  std::vector<Tensor> inputs;
  for (std::size_t k = first; k < node.input_count(); ++k) inputs.push_back(node.tensor(k));
  ScanParts parts{body, inputs.size() - scanned, {}, {}, {}, {}};
  if (static_cast<std::size_t>(body.input_size()) != inputs.size() ||
      static_cast<std::size_t>(body.output_size()) < parts.carried)
    node.malformed("body", fmt::format("{} inputs", inputs.size()),
                   std::to_string(body.input_size()));
  if (node.opset() >= 9) {
    parts.axes = node.integers("scan_input_axes");
    parts.directions = node.integers("scan_input_directions");
    parts.result_axes = node.integers("scan_output_axes");
    parts.result_directions = node.integers("scan_output_directions");
    return outputs_of(scan_once(node, parts, inputs, run));
  }
  // Version 8 runs a scan for each element of a batch.
  if (node.has(0)) node.unsupported("sequences of different lengths");
  parts.directions = node.integers("directions");
  return outputs_of(
      map([&](const std::vector<Tensor>& element) { return scan_once(node, parts, element, run); },
          inputs));
}

}  // namespace

std::vector<Tensor> RunBody::operator()(const GraphProto& graph, std::vector<Value> given) const {
  std::vector<Tensor> tensors;
  for (const Value& value : values(graph, std::move(given)))
    tensors.push_back(tensor_between(value));
  return tensors;
}

const ControlConverter* find_control(std::string_view domain, std::string_view name) {
  static constexpr ControlConverter kFlexAttention = {{"FlexAttention"}, convert_flex_attention};
  if (domain == "ai.onnx.preview" && name == kFlexAttention.row.name) return &kFlexAttention;
  if (!domain.empty()) return nullptr;
  static constexpr ControlConverter kRows[] = {
      {{"If"}, convert_if}, {{"Loop", nullptr, {}, true}, convert_loop}, {{"Scan"}, convert_scan}};
  for (const ControlConverter& row : kRows)
    if (row.row.name == name) return &row;
  return nullptr;
}

}  // namespace heddle::onnx
