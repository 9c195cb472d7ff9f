// What nested graphs take and give.
#pragma once

#include <optional>
#include <vector>

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// @throws UnsupportedError for maps and optionals among the inputs and outputs of a nested graph
void check_types(const Node& node, const onnx_format::GraphProto& graph);
/// The integer in input k, if it is known while tracing.
std::optional<SymInt> known_integer(const Node& node, std::size_t k);
Outputs outputs_of(const std::vector<Tensor>& tensors);
/// A condition of one element as a scalar.
Tensor scalar_of(const Tensor& tensor);
/// What a nested graph gives as a tensor, which has numbers alone. @throws UnsupportedError.
Tensor tensor_between(const Value& value);

// Sequences between nested graphs are slices of tensors, in any number.

/// What the elements of a sequence are.
struct ElementType {
  DType dtype = f32;
  SymInts sizes;
};
/// Nothing of a list without elements.
std::optional<ElementType> element_type(const Value& sequence);
/// A sequence without elements.
Tensor no_rows(const ElementType& type);

}  // namespace heddle::onnx
