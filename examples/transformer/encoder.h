// A transformer encoder written with the C++ API: batch and sequence length are dynamic, the weights are
// tensors that the callable captures.
#pragma once

#include <cmath>
#include <cstdint>
#include <heddle/heddle.h>
#include <vector>

namespace example {

using heddle::Tensor;

struct EncoderConfig {
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t vocabulary = 1000;
  std::int64_t positions = 512;
};

/// Weights from a small generator of its own, so that any language can make the same ones:
/// x' = 6364136223846793005 x + 1442695040888963407 (mod 2^64), value = (x' >> 40) / 2^23 - 1.
class WeightSource {
 public:
  Tensor next(heddle::Sizes sizes, double scale) {
    Tensor tensor = Tensor::empty(heddle::f32, std::move(sizes));
    float* data = tensor.data_as<float>();
    for (std::int64_t k = 0; k < tensor.count(); ++k) {
      state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
      data[k] = static_cast<float>((static_cast<double>(state_ >> 40) / 8388608.0 - 1.0) * scale);
    }
    return tensor;
  }

 private:
  std::uint64_t state_ = 1;
};

struct Layer {
  Tensor q, k, v, o, q_bias, k_bias, v_bias, o_bias;
  Tensor up, up_bias, down, down_bias;
  Tensor norm1, norm1_bias, norm2, norm2_bias;
};

/// ids i64[batch, length] -> f32[batch, length, width]
class Encoder {
 public:
  explicit Encoder(const EncoderConfig& config) : config_(config) {
    WeightSource source;
    const double scale = std::sqrt(3.0 / static_cast<double>(config.width));
    const std::int64_t d = config.width;
    tokens_ = source.next({config.vocabulary, d}, 1);
    positions_ = source.next({config.positions, d}, 0.1);
    for (std::int64_t k = 0; k < config.layers; ++k) {
      Layer layer;
      for (Tensor* w : {&layer.q, &layer.k, &layer.v, &layer.o}) *w = source.next({d, d}, scale);
      for (Tensor* b : {&layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.o_bias})
        *b = source.next({d}, 0.1);
      layer.up = source.next({d, 4 * d}, scale);
      layer.up_bias = source.next({4 * d}, 0.1);
      layer.down = source.next({4 * d, d}, scale / 2);
      layer.down_bias = source.next({d}, 0.1);
      layer.norm1 = source.next({d}, 1);
      layer.norm1_bias = source.next({d}, 0.1);
      layer.norm2 = source.next({d}, 1);
      layer.norm2_bias = source.next({d}, 0.1);
      layers_.push_back(layer);
    }
  }

  Tensor operator()(const Tensor& ids) const {
    const heddle::SymInt length = ids.size(1);
    Tensor x = heddle::gather(tokens_, ids) + heddle::slice(positions_, 0, 0, length);
    for (const Layer& layer : layers_) {
      x = heddle::layer_norm(x + attend(layer, x), layer.norm1, layer.norm1_bias);
      const Tensor hidden = heddle::gelu(heddle::matmul(x, layer.up) + layer.up_bias);
      x = heddle::layer_norm(x + heddle::matmul(hidden, layer.down) + layer.down_bias, layer.norm2,
                             layer.norm2_bias);
    }
    return x;
  }

 private:
  Tensor split_heads(const Tensor& x) const {
    return heddle::permute(
        heddle::reshape(x, {x.size(0), x.size(1), config_.heads, config_.width / config_.heads}),
        {0, 2, 1, 3});
  }

  Tensor attend(const Layer& layer, const Tensor& x) const {
    const Tensor q = split_heads(heddle::matmul(x, layer.q) + layer.q_bias);
    const Tensor k = split_heads(heddle::matmul(x, layer.k) + layer.k_bias);
    const Tensor v = split_heads(heddle::matmul(x, layer.v) + layer.v_bias);
    const double scale = 1 / std::sqrt(static_cast<double>(config_.width / config_.heads));
    const Tensor weights =
        heddle::softmax(heddle::matmul(q, heddle::transpose(k, -1, -2)) * scale, -1);
    const Tensor joined = heddle::permute(heddle::matmul(weights, v), {0, 2, 1, 3});
    return heddle::matmul(heddle::reshape(joined, {x.size(0), x.size(1), config_.width}), layer.o) +
           layer.o_bias;
  }

  EncoderConfig config_;
  Tensor tokens_, positions_;
  std::vector<Layer> layers_;
};

}  // namespace example
