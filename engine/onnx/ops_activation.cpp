// Activations.

#include "engine/onnx/activations.h"
#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

Outputs unary(const Node& node) { return {one(node.ir_op(), {node.tensor(0)})}; }

Outputs convert_leaky_relu(const Node& node) {
  return {leaky_relu(node.tensor(0), node.number("alpha", 0.01))};
}

Outputs parametric_relu(const Node& node) {
  const Tensor x = node.tensor(0);
  Tensor slope = node.tensor(1);
  // Until version 7 a vector of slopes runs along the channels.
  if (node.opset() < 7 && slope.rank() == 1 && x.rank() > 2)
    slope = unsqueeze_all(slope, range_of(1, x.rank() - 1));
  return {where(less(x, Tensor::scalar(x.dtype(), 0)), x * slope, x)};
}

Outputs convert_elu(const Node& node) { return {elu(node.tensor(0), node.number("alpha", 1.0))}; }

Outputs selu(const Node& node) {
  const double alpha = node.number("alpha", 1.67326319217681884765625);
  const double gamma = node.number("gamma", 1.05070102214813232421875);
  return {elu(node.tensor(0), alpha) * gamma};
}

Outputs celu(const Node& node) {
  const Tensor x = node.tensor(0);
  const double alpha = node.number("alpha", 1.0);
  return {where(less(x, 0.0), expm1(x / alpha) * alpha, x)};
}

Outputs convert_hard_sigmoid(const Node& node) {
  return {hard_sigmoid(node.tensor(0), node.number("alpha", 0.2), node.number("beta", 0.5))};
}

Outputs hard_swish(const Node& node) {
  const Tensor x = node.tensor(0);
  return {x * clamp(x * (1.0 / 6.0) + 0.5, 0.0, 1.0)};
}

Outputs mish(const Node& node) {
  const Tensor x = node.tensor(0);
  return {x * tanh(softplus(x))};
}

Outputs convert_softsign(const Node& node) { return {softsign(node.tensor(0))}; }

Outputs convert_thresholded_relu(const Node& node) {
  return {thresholded_relu(node.tensor(0), node.number("alpha", 1.0))};
}

Outputs shrink(const Node& node) {
  // Integers are moved by a real number and cut to integers again.
  const DType dtype = node.value(0).dtype();
  const Tensor x = is_floating(dtype) ? node.tensor(0) : cast(node.tensor(0), f64);
  const double bias = node.number("bias", 0.0);
  const double lambda = node.number("lambd", 0.5);
  const Tensor above = where(greater(x, lambda), x - bias, Tensor::scalar(x.dtype(), 0));
  const Tensor moved = where(less(x, -lambda), x + bias, above);
  return {is_floating(dtype) ? moved : cast(moved, dtype)};
}

Outputs convert_gelu(const Node& node) {
  return {gelu(node.tensor(0), node.string("approximate", "none") == "tanh")};
}

Outputs swish(const Node& node) {
  const Tensor x = node.tensor(0);
  return {x * sigmoid(x * node.number("alpha", 1.0))};
}

Outputs swiglu(const Node& node) { return {swish(node)[0].tensor() * node.tensor(1)}; }

}  // namespace

std::span<const Converter> activation_converters() {
  static constexpr Converter kConverters[] = {
      {"Celu", celu},
      {"Elu", convert_elu},
      {"Gelu", convert_gelu},
      {"HardSigmoid", convert_hard_sigmoid},
      {"HardSwish", hard_swish},
      {"LeakyRelu", convert_leaky_relu},
      {"Mish", mish},
      {"PRelu", parametric_relu},
      {"Relu", unary, "relu"},
      {"Selu", selu},
      {"Shrink", shrink},
      {"Softplus", unary, "softplus"},
      {"Softsign", convert_softsign},
      {"SwiGLU", swiglu},
      {"Swish", swish},
      {"ThresholdedRelu", convert_thresholded_relu},
  };
  return kConverters;
}

}  // namespace heddle::onnx
