// A mixture-of-experts layer whose routing is an op of our own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <heddle/heddle.h>
#include <numeric>
#include <vector>

namespace example {

/// Each row of `scores` [n, experts] picks its k best experts: their weights (a softmax over the k) and
/// numbers, best first. `counts` [experts] counts, over all calls, how often each was picked.
inline void route(const heddle::KernelCall& call) {
  const heddle::KernelTensor& scores = call.tensor(0);
  const std::int64_t rows = scores.sizes()[0];
  const std::int64_t experts = scores.sizes()[1];
  const std::int64_t k = call.integer("k");
  auto* order = static_cast<std::int64_t*>(call.workspace);
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* score = scores.as<const float>() + row * scores.strides()[0];
    const auto at = [&](std::int64_t e) { return score[e * scores.strides()[1]]; };
    std::iota(order, order + experts, 0);
    std::stable_sort(order, order + experts,
                     [&](std::int64_t a, std::int64_t b) { return at(a) > at(b); });
    float sum = 0;
    for (std::int64_t j = 0; j < k; ++j) sum += std::exp(at(order[j]) - at(order[0]));
    for (std::int64_t j = 0; j < k; ++j) {
      call.results[0].as<float>()[row * k + j] = std::exp(at(order[j]) - at(order[0])) / sum;
      call.results[1].as<std::int64_t>()[row * k + j] = order[j];
      ++call.tensor(1).as<std::int64_t>()[order[j] * call.tensor(1).strides()[0]];
    }
  }
}

/// The same on CUDA, a thread a row. The k picks are found one after another: a row has few experts.
inline const heddle::CudaText& route_on_cuda() {
  static const heddle::CudaText text(R"(
extern "C" __global__ void moe_route(const float* scores, long long row_stride, long long stride,
                                     long long* counts, long long count_stride, float* weights,
                                     long long* picks, long long rows, long long experts, long long k) {
  const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* score = scores + row * row_stride;
  long long* picked = picks + row * k;
  float sum = 0.0f;
  for (long long j = 0; j < k; ++j) {
    long long best = -1;
    for (long long e = 0; e < experts; ++e) {
      bool taken = false;
      for (long long i = 0; i < j; ++i) taken = taken || picked[i] == e;
      if (!taken && (best < 0 || score[e * stride] > score[best * stride])) best = e;
    }
    picked[j] = best;
    weights[row * k + j] = expf(score[best * stride] - score[picked[0] * stride]);
    sum += weights[row * k + j];
    atomicAdd((unsigned long long*)(counts + best * count_stride), 1ull);
  }
  for (long long j = 0; j < k; ++j) weights[row * k + j] /= sum;
}
)",
                                     "moe_route");
  return text;
}

inline void route_on_cuda(const heddle::KernelCall& call, void* stream) {
  const heddle::KernelTensor& scores = call.tensor(0);
  const heddle::KernelTensor& counts = call.tensor(1);
  const std::int64_t rows = scores.sizes()[0];
  // CUDA's long long, which is what std::int64_t is made of elsewhere.
  using Number = long long;
  route_on_cuda().launch(
      call, stream, {.blocks = (rows + 127) / 128, .threads = 128}, scores.as<const float>(),
      Number{scores.strides()[0]}, Number{scores.strides()[1]}, counts.as<Number>(),
      Number{counts.strides()[0]}, call.results[0].as<float>(), call.results[1].as<Number>(),
      Number{rows}, Number{scores.sizes()[1]}, Number{call.integer("k")});
}

inline const heddle::RegisteredOp& routing_op() {
  static const heddle::RegisteredOp op = heddle::register_op(
      {.schema = "moe::route(Tensor scores, Tensor(a!) counts, int k=2) -> (Tensor, Tensor)",
       .shape =
           [](const heddle::ShapeCall& call) {
             const heddle::SymInt rows = call.tensor(0).sizes[0];
             const heddle::SymInt k = call.integer("k");
             return std::vector{heddle::TensorType{heddle::f32, {rows, k}},
                                heddle::TensorType{heddle::i64, {rows, k}}};
           },
       .cpu = route,
       .workspace_bytes =
           [](const heddle::KernelCall& call) { return call.tensor(0).sizes()[1] * 8; },
       .cuda = [](const heddle::KernelCall& call, void* stream) { route_on_cuda(call, stream); },
       .cuda_texts = {route_on_cuda()}});
  return op;
}

/// x [n, width] through the k experts that a gate picks for each row; counts [experts] is written. Rows are put in the
/// order of their experts, so that each expert multiplies those that picked it and no others.
struct MoeLayer {
  std::int64_t experts = 8;
  std::int64_t width = 64;
  std::int64_t hidden = 256;
  std::int64_t k = 2;
  heddle::Tensor gate{};  ///< [width, experts]
  heddle::Tensor up{};    ///< [experts, width, hidden]
  heddle::Tensor down{};  ///< [experts, hidden, width]

  explicit MoeLayer(std::int64_t number = 8)
      : experts(number),
        gate(weights({width, experts}, 1)),
        up(weights({experts, width, hidden}, 2)),
        down(weights({experts, hidden, width}, 3)) {}

  heddle::Tensor operator()(const heddle::Tensor& x, const heddle::Tensor& counts) const {
    const auto picked = routing_op()(heddle::matmul(x, gate), counts, k);
    // Choices in the order of their experts: choice c is of row c / k.
    const heddle::Tensor choices = heddle::reshape(picked[1], {-1});
    const auto [sorted, order] = heddle::sort(choices);
    const heddle::Tensor numbers = heddle::iota({experts, 1});
    const heddle::Tensor ends = heddle::sum(
        heddle::cast(heddle::less_equal(heddle::unsqueeze(choices, 0), numbers), heddle::i64), {1});
    const heddle::Tensor rows = heddle::gather(x, order / k);
    const heddle::Tensor share = heddle::gather(heddle::reshape(picked[0], {-1, 1}), order);
    const heddle::Tensor inner = heddle::gelu(heddle::grouped_matmul(rows, up, ends)) * share;
    const heddle::Tensor out = heddle::grouped_matmul(inner, down, ends);
    // Back in the order of the choices, k to a row.
    const heddle::Tensor back = heddle::gather(out, heddle::sort(order).second);
    return heddle::sum(heddle::reshape(back, {-1, k, width}), {1});
  }

 private:
  /// About 1 over the root of the last size but one.
  static heddle::Tensor weights(const std::vector<std::int64_t>& sizes, std::uint64_t seed) {
    heddle::Tensor made = heddle::Tensor::empty(heddle::f32, sizes);
    const double scale = 2 / std::sqrt(static_cast<double>(sizes[sizes.size() - 2]));
    std::uint64_t state = seed * 0x9e3779b97f4a7c15u;
    for (std::int64_t k = 0; k < made.count(); ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double unit = static_cast<double>(state >> 40) / static_cast<double>(1 << 24) - 0.5;
      made.data_as<float>()[k] = static_cast<float>(unit * scale);
    }
    return made;
  }
};

}  // namespace example
