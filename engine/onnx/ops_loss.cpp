// Losses over classes.

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

/// -weight[target] * log_probabilities[n, target, …], reduced. Ignored targets weigh 0.
Tensor likelihood_loss(const Node& node, const Tensor& log_probabilities) {
  const Tensor targets = cast(node.tensor(1), i64);
  const DType dtype = log_probabilities.dtype();
  Tensor safe = targets;
  Tensor weights;
  if (node.has_attr("ignore_index")) {
    const Tensor ignored = equal(targets, node.integer("ignore_index", 0));
    safe = where(ignored, 0, targets);
    weights = cast(logical_not(ignored), dtype);
  }
  if (node.has(2)) {
    const Tensor each = gather(node.tensor(2), safe, 0);
    weights = weights.defined() ? weights * each : each;
  }
  const Tensor picked =
      one("gather_elements", {log_probabilities, unsqueeze(safe, 1)}, {{"axis", std::int64_t{1}}});
  Tensor loss = neg(squeeze(picked, 1));
  if (weights.defined()) loss = loss * weights;
  const std::string reduction = node.string("reduction", "mean");
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss);
  if (reduction != "mean") node.malformed("reduction", "none, sum or mean", reduction);
  return weights.defined() ? sum(loss) / sum(weights) : mean(loss);
}

Outputs negative_log_likelihood(const Node& node) {
  return {likelihood_loss(node, node.tensor(0))};
}

Outputs softmax_cross_entropy(const Node& node) {
  const Tensor log_probabilities = log_softmax(node.tensor(0), 1);
  return {likelihood_loss(node, log_probabilities), log_probabilities};
}

}  // namespace

std::span<const Converter> loss_converters() {
  static constexpr Converter kConverters[] = {
      {"NegativeLogLikelihoodLoss", negative_log_likelihood},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy},
  };
  return kConverters;
}

}  // namespace heddle::onnx
