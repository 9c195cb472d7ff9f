#include "engine/onnx/nested_values.h"

#include <utility>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "heddle/ops.h"

namespace heddle::onnx {

using onnx_format::GraphProto;

void check_types(const Node& node, const GraphProto& graph) {
  using Type = onnx_format::TypeProto;
  for (const auto* list : {&graph.input(), &graph.output()})
    for (const auto& value : *list)
      if (const auto kind = value.type().value_case();
          kind != Type::kTensorType && kind != Type::kSequenceType && kind != Type::VALUE_NOT_SET)
        node.unsupported("a map or optional in a nested graph");
}

std::optional<SymInt> known_integer(const Node& node, std::size_t k) {
  if (!node.has(k)) return {};
  const auto ints = node.value(k).ints();
  if (!ints || ints->size() != 1) return {};
  return (*ints)[0];
}

Outputs outputs_of(const std::vector<Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

Tensor scalar_of(const Tensor& tensor) {
  return tensor.rank() == 0 ? tensor : reshape(tensor, std::vector<SymInt>{});
}

Tensor tensor_between(const Value& value) {
  if (value.is_text() || value.is_maps())
    throw UnsupportedError({.what = "a result of a nested graph",
                            .where = {},
                            .expected = "numbers",
                            .got = value.is_text() ? "strings" : "maps"});
  return value.tensor();
}

std::optional<ElementType> element_type(const Value& sequence) {
  if (sequence.is_listed() && sequence.elements().empty()) return {};
  const Tensor rows = sequence.rows();
  SymInts sizes = rows.shape();
  sizes.erase(sizes.begin());
  return ElementType{rows.dtype(), std::move(sizes)};
}

Tensor no_rows(const ElementType& type) {
  SymInts sizes = type.sizes;
  sizes.insert(sizes.begin(), 0);
  return expand(Tensor::zeros(type.dtype, {}), sizes);
}

}  // namespace heddle::onnx
