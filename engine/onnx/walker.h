// Walks the nodes of a model and says each with the engine's ops.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/onnx/node.h"
#include "engine/onnx/reader.h"
#include "engine/onnx/value.h"
#include "heddle/engine.h"

namespace heddle::onnx_format {
class FunctionProto;
class GraphProto;
class ModelProto;
}  // namespace heddle::onnx_format

namespace heddle::onnx {

/// A model that has been read: its messages, its initialisers as tensors, and which inputs are left.
struct Model {
  std::shared_ptr<const onnx_format::ModelProto> proto;
  TensorSource source;
  std::map<std::string, Tensor, std::less<>>
      parameters;  ///< initialisers and constants given by the user
  std::map<std::string, Packing, std::less<>>
      packings;  ///< of parameters that hold numbers of less than a byte
  std::map<std::string, std::int64_t, std::less<>> input_bits;  ///< of such inputs: 2 or 4
  std::set<std::string, std::less<>> texts;  ///< parameters and inputs that hold codes of strings
  std::vector<std::string> inputs;           ///< names of the engine's inputs, in order
};

/// Whether a tensor of the model is no parameter, which could get other values, but a number of its graph: a scalar, or a quantised
/// one that is written as a vector.
bool is_number(const Tensor& tensor);

/// Names and versions visible to a list of nodes: a graph, a branch or the body of a function.
struct Scope {
  const Scope* outer = nullptr;  ///< whose values are visible too; null for functions
  std::map<std::string, Value, std::less<>> values;
  /// Outputs that their nodes' converters do not give, with where that is: an error if they are read.
  std::map<std::string, std::string, std::less<>> not_computed;
  std::map<std::string, std::int64_t, std::less<>> opsets;
  AttributeMap arguments;  ///< attributes given to the function
  int depth = 0;

  const Value* find(std::string_view name) const;
};

/// Traces the model with `inputs`, which follow Model::inputs.
/// @throws UnsupportedError, NeedsValueError, ModelError, and what the ops throw, naming the node.
TraceResult walk(const Model& model, std::span<const Tensor> inputs);

}  // namespace heddle::onnx
