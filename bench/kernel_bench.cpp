// Kernels as the engine makes them, one thread, as a fraction of what limits them: the bandwidth of a copy of as
// many bytes, or the rate of multiply-adds, each measured in the same run.
#include <benchmark/benchmark.h>
#include <vector>

#include "bench/machine.h"

#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

Tensor filled(Sizes sizes) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    tensor.data_as<float>()[k] = static_cast<float>(k % 101) * 0.02f - 1;
  return tensor;
}

template <typename Callable>
void run(benchmark::State& state, Callable callable, std::vector<Tensor> inputs,
         std::vector<GraphPass> passes = {}) {
  EngineOptions options{.threads = 1};
  options.passes = std::move(passes);
  Engine engine(std::move(callable), options);
  std::vector<Tensor> outputs = engine.run(inputs);
  for (auto _ : state) engine.run_into(inputs, outputs);
  state.counters["kernels"] = static_cast<double>(engine.stats().kernels);
}

void count_fraction(benchmark::State& state, const char* name, double fraction) {
  state.counters[name] =
      benchmark::Counter(fraction, benchmark::Counter::kIsIterationInvariantRate);
}

/// `bytes` that must be read and written at least.
void limit_by_bandwidth(benchmark::State& state, std::int64_t bytes) {
  count_fraction(state, "of_bandwidth", static_cast<double>(bytes) / measured_bandwidth(bytes));
  state.SetLabel("limit: a copy of as many bytes");
}

void limit_by_arithmetic(benchmark::State& state, double multiply_adds) {
  static const double peak = measured_fma_gflops();
  count_fraction(state, "of_fma_rate", 2e-9 * multiply_adds / peak);
  count_fraction(state, "gflops", 2e-9 * multiply_adds);
  state.SetLabel("limit: multiply-adds in registers");
}

void pointwise_add(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  run(state, [](const Tensor& x, const Tensor& y) { return x + y; },
      {filled({count}), filled({count})});
  limit_by_bandwidth(state, 12 * count);
}
BENCHMARK(pointwise_add)->Arg(1 << 14)->Arg(1 << 16)->Arg(1 << 20)->Arg(1 << 24);

void softmax_rows(benchmark::State& state) {
  const Tensor x = filled({state.range(0), state.range(1)});
  run(state, [](const Tensor& t) { return softmax(t, -1); }, {x});
  limit_by_bandwidth(state, 8 * x.count());
}
BENCHMARK(softmax_rows)->Args({32, 1024})->Args({512, 1024})->Args({8192, 1024});

void layer_norm_rows(benchmark::State& state) {
  const Tensor x = filled({state.range(0), state.range(1)});
  const Tensor scale = filled({state.range(1)});
  const Tensor bias = filled({state.range(1)});
  run(state, [=](const Tensor& t) { return layer_norm(t, scale, bias); }, {x});
  limit_by_bandwidth(state, 8 * x.count());
}
BENCHMARK(layer_norm_rows)->Args({32, 768})->Args({512, 768})->Args({8192, 768});

void matmul_constant_weights(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const Tensor weights = filled({k, n});
  run(state, [=](const Tensor& x) { return matmul(x, weights); }, {filled({m, k})});
  limit_by_arithmetic(state, static_cast<double>(m * n * k));
}
BENCHMARK(matmul_constant_weights)
    ->Args({1, 768, 768})
    ->Args({1, 3072, 768})
    ->Args({2, 768, 768})
    ->Args({3, 768, 768})
    ->Args({7, 768, 768})
    ->Args({8, 768, 768})
    ->Args({64, 64, 64})
    ->Args({32, 768, 768})
    ->Args({128, 768, 768})
    ->Args({128, 3072, 768})
    ->Args({512, 512, 512})
    ->Unit(benchmark::kMicrosecond);

Tensor bytes(DType dtype, Sizes sizes) {
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  auto* first = static_cast<std::uint8_t*>(tensor.data());
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    first[k] = static_cast<std::uint8_t>(k * 37 % 251);
  return tensor;
}

/// Two layers of a network in 8 bits, whose sums are scaled and become bytes again: size of the image, channels, taps, stride of the
/// second layer. The first has one tap, so that what the second reads has its channels last.
void conv_of_bytes(benchmark::State& state) {
  const std::int64_t size = state.range(0), channels = state.range(1);
  const std::int64_t taps = state.range(2), stride = state.range(3);
  const Tensor one = bytes(i8, {channels, channels, 1, 1});
  const Tensor weights = bytes(i8, {channels, channels, taps, taps});
  const auto layer = [](const Tensor& x, const Tensor& w, std::int64_t move, std::int64_t pad) {
    const Tensor real = cast(x, f32) * 0.02;
    const Tensor sums =
        conv(real, cast(w, f32) * 0.01, Tensor(), {move, move}, {pad, pad}, {pad, pad});
    return cast(clamp(round(sums / 4.0), 0.0, 255.0), u8);
  };
  run(state, [=](const Tensor& x) { return layer(layer(x, one, 1, 0), weights, stride, taps / 2); },
      {bytes(u8, {1, channels, size, size})});
  const std::int64_t result = (size + stride - 1) / stride;
  const std::int64_t products = channels * channels * (size * size + result * result * taps * taps);
  count_fraction(state, "gigaproducts", 1e-9 * static_cast<double>(products));
}
BENCHMARK(conv_of_bytes)
    ->Args({56, 64, 3, 1})
    ->Args({28, 128, 3, 1})
    ->Args({14, 256, 3, 1})
    ->Args({7, 512, 3, 1})
    ->Args({56, 64, 3, 2})
    ->Args({35, 64, 5, 1})
    ->Args({17, 160, 3, 1})
    ->Unit(benchmark::kMicrosecond);

/// 768 to 3072 to 768: 19 MB of weights, or 9 MB in bf16. The second argument: 1 rounds weights, 2 both operands.
void mlp(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const Tensor up = filled({768, 3072});
  const Tensor down = filled({3072, 768});
  std::vector<GraphPass> passes;
  if (state.range(1) == 1) passes.push_back({.name = "bf16-weights"});
  if (state.range(1) == 2) passes.push_back({.name = "bf16-products"});
  run(
      state, [=](const Tensor& x) { return matmul(relu(matmul(x, up)), down); },
      {filled({rows, 768})}, passes);
  limit_by_arithmetic(state, static_cast<double>(2 * rows * 768 * 3072));
}
BENCHMARK(mlp)
    ->ArgNames({"rows", "bf16"})
    ->ArgsProduct({{1, 4, 32, 128}, {0, 1, 2}})
    ->Unit(benchmark::kMicrosecond);

/// 12 heads of 64.
void attention_heads(benchmark::State& state) {
  const std::int64_t length = state.range(0);
  const Tensor x = filled({1, 12, length, 64});
  run(state, [](const Tensor& q, const Tensor& k, const Tensor& v) { return attention(q, k, v); },
      {x, x, x});
  limit_by_arithmetic(state, static_cast<double>(2 * 12 * length * length * 64));
}
/// The same in primitives: three kernels, and scores in memory.
void attention_written_out(benchmark::State& state) {
  const std::int64_t length = state.range(0);
  const Tensor x = filled({1, 12, length, 64});
  run(state,
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        return matmul(softmax(matmul(q, permute(k, {0, 1, 3, 2})) * 0.125, -1), v);
      },
      {x, x, x});
  limit_by_arithmetic(state, static_cast<double>(2 * 12 * length * length * 64));
}
BENCHMARK(attention_written_out)->Arg(128)->Arg(512)->Unit(benchmark::kMicrosecond);
BENCHMARK(attention_heads)->Arg(128)->Arg(512)->Unit(benchmark::kMicrosecond);

/// Rows to columns, of f32 (4 bytes) or u8 (1).
void transposed(benchmark::State& state) {
  const Sizes sizes{state.range(0), state.range(1)};
  const DType dtype = state.range(2) == 4 ? f32 : u8;
  run(state, [](const Tensor& x) { return permute(x, {1, 0}); }, {Tensor::full(dtype, sizes, 1.0)});
  limit_by_bandwidth(state, 2 * state.range(2) * sizes[0] * sizes[1]);
}
BENCHMARK(transposed)
    ->ArgNames({"rows", "columns", "bytes"})
    ->ArgsProduct({{784}, {128}, {1, 4}})
    ->Args({1024, 1024, 4})
    ->Unit(benchmark::kMicrosecond);

void topk_rows(benchmark::State& state) {
  const std::int64_t k = state.range(2);
  Tensor x = filled({state.range(0), state.range(1)});
  for (std::int64_t i = 0; i < x.count(); ++i)
    x.data_as<float>()[i] = static_cast<float>((i * 7919) % 10007);
  run(state, [=](const Tensor& t) { return topk(t, k).first; }, {x});
  limit_by_bandwidth(state, 4 * x.count());
}
BENCHMARK(topk_rows)->Args({1, 32768, 50})->Args({64, 1000, 5});

/// Bias and GELU in the same kernel as the product.
void matmul_bias_gelu(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const Tensor weights = filled({k, n});
  const Tensor bias = filled({n});
  run(state, [=](const Tensor& x) { return gelu(matmul(x, weights) + bias); }, {filled({m, k})});
  limit_by_arithmetic(state, static_cast<double>(m * n * k));
}
BENCHMARK(matmul_bias_gelu)->Args({128, 768, 768})->Unit(benchmark::kMicrosecond);

/// Where groups of one length end.
Tensor even_ends(std::int64_t rows, std::int64_t groups) {
  Tensor ends = Tensor::empty(i64, {groups});
  for (std::int64_t g = 0; g < groups; ++g)
    ends.data_as<std::int64_t>()[g] = rows * (g + 1) / groups;
  return ends;
}

/// Rows in groups of one length, each group times a matrix of its own.
void grouped_products(benchmark::State& state) {
  const std::int64_t rows = state.range(0), groups = state.range(1), n = state.range(2),
                     k = state.range(3);
  const Tensor weights = filled({groups, k, n});
  run(state, [=](const Tensor& x, const Tensor& ends) { return grouped_matmul(x, weights, ends); },
      {filled({rows, k}), even_ends(rows, groups)});
  limit_by_arithmetic(state, static_cast<double>(rows * n * k));
}
BENCHMARK(grouped_products)->Args({512, 8, 768, 768})->Unit(benchmark::kMicrosecond);

/// The same as graphs without such an op have to say it: all rows times each matrix, and a mask.
void grouped_products_by_masks(benchmark::State& state) {
  const std::int64_t rows = state.range(0), groups = state.range(1), n = state.range(2),
                     k = state.range(3);
  std::vector<Tensor> weights;
  for (std::int64_t g = 0; g < groups; ++g) weights.push_back(filled({k, n}));
  const auto masked = [=](const Tensor& x, const Tensor& ends) {
    const Tensor row = iota({rows, 1});
    Tensor result;
    Tensor begin = Tensor::scalar(i64, 0);
    for (std::int64_t g = 0; g < groups; ++g) {
      const Tensor end = slice(ends, 0, g, g + 1);
      const Tensor mine = logical_and(greater_equal(row, begin), less(row, end));
      const Tensor part = where(mine, matmul(x, weights[static_cast<std::size_t>(g)]), 0.0f);
      result = result.defined() ? result + part : part;
      begin = end;
    }
    return result;
  };
  run(state, masked, {filled({rows, k}), even_ends(rows, groups)});
  limit_by_arithmetic(state, static_cast<double>(rows * n * k));
}
BENCHMARK(grouped_products_by_masks)->Args({512, 8, 768, 768})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace heddle::bench
