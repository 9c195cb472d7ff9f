// What a value of a model is while its nodes are walked.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/tensor.h"

namespace heddle::onnx {

using SymInts = std::vector<SymInt>;
using Ints = std::vector<std::int64_t>;

/// A tensor, a scalar or short vector of integers known while tracing (symbolic sizes among them), or both.
/// Shape arithmetic stays on the known integers; an op on tensors gets a tensor made of them.
class Value {
 public:
  Value() = default;
  Value(Tensor tensor);  // NOLINT: implicit on purpose
  /// Known integers: a vector, or a scalar when `scalar`.
  static Value of_ints(SymInts ints, bool scalar, DType dtype = i64);
  /// An input of the graph, called `name`.
  static Value of_input(Tensor tensor, std::string name);

  bool defined() const { return state_ != nullptr; }
  DType dtype() const;
  std::int64_t rank() const;
  SymInts shape() const;
  /// The tensor, made from the integers at the first call; in a region at each.
  Tensor tensor() const;
  /// The tensor if it has data already.
  std::optional<Tensor> concrete() const;
  /// The integers, row-major, if they are known: also those of a small integer tensor with data.
  std::optional<SymInts> ints() const;
  /// Whether arithmetic on the integers takes the place of arithmetic on tensors.
  bool is_shape_like() const;
  /// The graph input that this value is; empty if it is computed.
  const std::string& input_name() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heddle::onnx
