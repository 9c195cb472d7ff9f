// Activations with parameters, as ops of their own and inside of others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/onnx/node.h"

namespace heddle::onnx {

Tensor leaky_relu(const Tensor& x, double alpha);
Tensor elu(const Tensor& x, double alpha);
Tensor hard_sigmoid(const Tensor& x, double alpha, double beta);
Tensor softsign(const Tensor& x);
Tensor thresholded_relu(const Tensor& x, double alpha);

/// One of those that a recurrent layer names, with its parameters.
struct Activation {
  std::string_view name;
  double alpha = 0;
  double beta = 0;
  Tensor (*apply)(const Tensor& x, double alpha, double beta) = nullptr;

  Tensor operator()(const Tensor& x) const { return apply(x, alpha, beta); }
};

/// The one called `name`, whatever the case of its letters, with the parameters that its op has without attributes.
/// @throws UnsupportedError.
Activation activation_called(const Node& node, const std::string& name);

/// Those of all directions of a recurrent layer in turn, which are `otherwise` where the node names none.
/// Those that take an alpha take the next one of activation_alpha, if any is left, and so with beta.
/// @throws ModelError, UnsupportedError.
std::vector<Activation> recurrent_activations(const Node& node,
                                              const std::vector<std::string>& otherwise);

}  // namespace heddle::onnx
