// Normalisations and softmax.

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

/// Until version 13 the dimensions from `axis` on count as one.
Tensor over_axis(const Node& node, const Tensor& x,
                 Tensor (*apply_last)(const Tensor&, std::int64_t)) {
  if (node.opset() >= 13) return apply_last(x, node.axis(node.integer("axis", -1), x.rank()));
  const std::int64_t axis = node.axis(node.integer("axis", 1), x.rank());
  const SymInts sizes = x.shape();
  const std::span<const SymInt> all(sizes);
  const Tensor flat = reshape(x, {product(all.first(static_cast<std::size_t>(axis))),
                                  product(all.subspan(static_cast<std::size_t>(axis)))});
  return reshape(apply_last(flat, 1), sizes);
}

Outputs convert_softmax(const Node& node) {
  return {over_axis(node, node.tensor(0),
                    [](const Tensor& x, std::int64_t axis) { return softmax(x, axis); })};
}

Outputs convert_log_softmax(const Node& node) {
  return {over_axis(node, node.tensor(0),
                    [](const Tensor& x, std::int64_t axis) { return log_softmax(x, axis); })};
}

Outputs hardmax(const Node& node) {
  return {over_axis(node, node.tensor(0), [](const Tensor& x, std::int64_t axis) {
    if (x.size(axis) == 0) return x;
    return cast(equal(iota(x.shape(), axis), argmax(x, axis, true)), x.dtype());
  })};
}

/// A vector of channels as [C, 1, 1, …], to stand beside x without its first dimension.
Tensor per_channel(const Tensor& vector, const Tensor& x) {
  return unsqueeze_all(vector, range_of(1, x.rank() - 1));
}

Outputs batch_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor scale = node.tensor(1);
  const Tensor bias = node.tensor(2);
  const OpAttrs attrs{{"epsilon", node.number("epsilon", 1e-5)}};
  const bool training = node.integer("training_mode", 0) != 0;
  if (node.opset() < 9 && node.integer("spatial", 1) == 0)
    node.unsupported("statistics of each element (spatial = 0)");
  if (!training) {
    if (node.wants_output(1)) node.unsupported("statistics of a batch in inference");
    return {one("batch_norm", {x, scale, bias, node.tensor(3), node.tensor(4)}, attrs)};
  }
  if (x.rank() < 2) node.malformed("X", "two dimensions or more", std::to_string(x.rank()));
  Ints axes = range_of(0, x.rank());
  axes.erase(axes.begin() + 1);
  const double momentum = node.number("momentum", 0.9);
  const Tensor batch_mean = mean(x, axes);
  const Tensor batch_variance = variance(x, axes);
  return {one("batch_norm", {x, scale, bias, batch_mean, batch_variance}, attrs),
          node.tensor(3) * momentum + batch_mean * (1 - momentum),
          node.tensor(4) * momentum + batch_variance * (1 - momentum)};
}

/// x less its mean over `axes`, divided by its deviation.
Tensor standardised(const Tensor& x, const Ints& axes, double epsilon) {
  const Tensor centred = x - mean(x, axes, true);
  return centred * rsqrt(variance(x, axes, true) + epsilon);
}

Outputs instance_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor normal = standardised(x, range_of(2, x.rank()), node.number("epsilon", 1e-5));
  return {normal * per_channel(node.tensor(1), x) + per_channel(node.tensor(2), x)};
}

Outputs group_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t groups = node.integer("num_groups", 1);
  if (groups < 1) node.malformed("num_groups", "1 or more", std::to_string(groups));
  const Tensor split = reshape(x, {x.size(0), groups, -1});
  const Tensor normal = reshape(standardised(split, {2}, node.number("epsilon", 1e-5)), x.shape());
  const auto widened = [&](const Tensor& vector) {
    if (node.opset() >= 21) return per_channel(vector, x);
    const Tensor each = expand(reshape(vector, {groups, 1}), {groups, x.size(1) / groups});
    return per_channel(reshape(each, {x.size(1)}), x);
  };
  return {normal * widened(node.tensor(1)) + widened(node.tensor(2))};
}

Outputs layer_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t axis = node.axis(node.integer("axis", -1), x.rank());
  const double epsilon = node.number("epsilon", 1e-5);
  Outputs outputs{layer_norm(x, node.tensor(1), node.optional(2), axis, epsilon)};
  if (node.output_count() > 1) {
    const Ints axes = range_of(axis, x.rank());
    const DType stash = node.dtype("stash_type", f32);
    const Tensor wide = x.dtype() == stash ? x : cast(x, stash);
    outputs.emplace_back(mean(wide, axes, true));
    outputs.emplace_back(rsqrt(variance(wide, axes, true) + epsilon));
  }
  return outputs;
}

Outputs rms_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  return {rms_norm(x, node.tensor(1), node.axis(node.integer("axis", -1), x.rank()),
                   node.number("epsilon", 1e-5))};
}

Outputs lp_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  const Ints axes{node.axis(node.integer("axis", -1), x.rank())};
  const std::int64_t p = node.integer("p", 2);
  if (p != 1 && p != 2) node.malformed("p", "1 or 2", std::to_string(p));
  const Tensor norm = p == 1 ? sum(abs(x), axes, true) : sqrt(sum(x * x, axes, true));
  return {where(equal(norm, 0.0), 0.0, x / norm)};
}

Outputs mean_variance_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  const Ints axes = node.axes(node.integers("axes", {0, 2, 3}), x.rank());
  const Tensor centred = x - mean(x, axes, true);
  return {centred / (sqrt(variance(x, axes, true)) + 1e-9)};
}

/// Each element by the squares of its neighbours in the channel dimension.
Outputs local_response_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t size = node.integer("size", 1);
  constexpr std::int64_t kMaxSize = 1024;
  if (size < 1 || size > kMaxSize) node.malformed("size", "1 to 1024", std::to_string(size));
  if (x.rank() < 2) node.malformed("X", "two dimensions or more", std::to_string(x.rank()));
  const auto rank = static_cast<std::size_t>(x.rank());
  SymInts low(rank, SymInt(0));
  SymInts high(rank, SymInt(0));
  low[1] = (size - 1) / 2;
  high[1] = size - 1 - (size - 1) / 2;
  const Tensor squares = pad(x * x, low, high);
  Tensor total;
  for (std::int64_t k = 0; k < size; ++k) {
    const Tensor shifted = slice(squares, 1, k, x.size(1) + k);
    total = total.defined() ? total + shifted : shifted;
  }
  const double alpha = node.number("alpha", 1e-4) / static_cast<double>(size);
  return {x / pow(total * alpha + node.number("bias", 1.0), node.number("beta", 0.75))};
}

/// In inference nothing is dropped.
Outputs dropout(const Node& node) {
  const Value& x = node.value(0);
  const bool training = node.has(2) && node.known_number(2, "training_mode") != 0;
  if (training && (!node.has(1) || node.known_real(1, "ratio") != 0))
    node.unsupported("training with a ratio other than 0");
  Outputs outputs{x};
  if (node.wants_output(1)) {
    const bool bools = node.opset() >= 10;
    const Tensor kept = Tensor::scalar_int(bools ? boolean : x.dtype(), 1);
    outputs.emplace_back(expand(kept, x.shape()));
  }
  return outputs;
}

}  // namespace

std::span<const Converter> norm_converters() {
  static constexpr Converter kConverters[] = {
      {"BatchNormalization", batch_normalization},
      {"Dropout", dropout},
      {"GroupNormalization", group_normalization},
      {"Hardmax", hardmax},
      {"InstanceNormalization", instance_normalization},
      {"LRN", local_response_normalization},
      {"LayerNormalization", layer_normalization},
      {"LogSoftmax", convert_log_softmax},
      {"LpNormalization", lp_normalization},
      {"MeanVarianceNormalization", mean_variance_normalization},
      {"RMSNormalization", rms_normalization},
      {"Softmax", convert_softmax},
  };
  return kConverters;
}

}  // namespace heddle::onnx
