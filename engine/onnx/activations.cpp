#include "engine/onnx/activations.h"

#include <algorithm>
#include <cctype>

namespace heddle::onnx {

Tensor leaky_relu(const Tensor& x, double alpha) { return where(less(x, 0.0), x * alpha, x); }

Tensor elu(const Tensor& x, double alpha) { return where(less(x, 0.0), expm1(x) * alpha, x); }

Tensor hard_sigmoid(const Tensor& x, double alpha, double beta) {
  return clamp(x * alpha + beta, 0.0, 1.0);
}

Tensor softsign(const Tensor& x) { return x / (abs(x) + 1.0); }

Tensor thresholded_relu(const Tensor& x, double alpha) { return where(greater(x, alpha), x, 0.0); }

namespace {

/// What a parameter is without an attribute: the default of the op, or none.
enum class Parameter : std::uint8_t { Absent, Default, Needed };

struct ActivationRow {
  Activation activation;  ///< its name in lower case, and its defaults
  Parameter alpha = Parameter::Absent;
  Parameter beta = Parameter::Absent;
};

constexpr Parameter kDefault = Parameter::Default;
constexpr Parameter kNeeded = Parameter::Needed;

const ActivationRow kActivations[] = {
    {{"affine", 1, 0, [](const Tensor& x, double a, double b) { return x * a + b; }},
     kDefault,
     kDefault},
    {{"elu", 1, 0, [](const Tensor& x, double a, double) { return elu(x, a); }}, kDefault},
    {{"hardsigmoid", 0.2, 0.5, hard_sigmoid}, kDefault, kDefault},
    {{"leakyrelu", 0.01, 0, [](const Tensor& x, double a, double) { return leaky_relu(x, a); }},
     kDefault},
    {{"relu", 0, 0, [](const Tensor& x, double, double) { return relu(x); }}},
    {{"scaledtanh", 0, 0, [](const Tensor& x, double a, double b) { return tanh(x * b) * a; }},
     kNeeded,
     kNeeded},
    {{"sigmoid", 0, 0, [](const Tensor& x, double, double) { return sigmoid(x); }}},
    {{"softplus", 0, 0, [](const Tensor& x, double, double) { return softplus(x); }}},
    {{"softsign", 0, 0, [](const Tensor& x, double, double) { return softsign(x); }}},
    {{"tanh", 0, 0, [](const Tensor& x, double, double) { return tanh(x); }}},
    {{"thresholdedrelu", 1, 0,
      [](const Tensor& x, double a, double) { return thresholded_relu(x, a); }},
     kDefault},
};

const ActivationRow& row_of(const Node& node, const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const ActivationRow& row : kActivations) {
    if (row.activation.name == lower) return row;
  }
  node.unsupported("activation " + name);
}

/// The numbers of one attribute, of which activations take the next ones.
class Numbers {
 public:
  Numbers(const Node& node, std::string name)
      : node_(node), name_(std::move(name)), left_(node.numbers(name_)) {}

  double take(Parameter parameter, double otherwise, const std::string& activation) {
    if (parameter == Parameter::Absent) return otherwise;
    if (next_ < left_.size()) return left_[next_++];
    if (parameter == Parameter::Needed)
      node_.malformed(name_, "a number for " + activation, "none");
    return otherwise;
  }

 private:
  const Node& node_;
  std::string name_;
  std::vector<double> left_;
  std::size_t next_ = 0;
};

}  // namespace

Activation activation_called(const Node& node, const std::string& name) {
  return row_of(node, name).activation;
}

std::vector<Activation> recurrent_activations(const Node& node,
                                              const std::vector<std::string>& otherwise) {
  std::vector<std::string> names = node.strings("activations");
  for (std::size_t k = names.size(); k < otherwise.size(); ++k) names.push_back(otherwise[k]);
  Numbers alphas(node, "activation_alpha");
  Numbers betas(node, "activation_beta");
  std::vector<Activation> activations;
  for (const std::string& name : names) {
    const ActivationRow& row = row_of(node, name);
    Activation activation = row.activation;
    activation.alpha = alphas.take(row.alpha, activation.alpha, name);
    activation.beta = betas.take(row.beta, activation.beta, name);
    activations.push_back(activation);
  }
  return activations;
}

}  // namespace heddle::onnx
