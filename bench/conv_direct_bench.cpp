// Convolutions by the direct algorithm on memory with the channels last: by the kernel of windows, and by oneDNN's primitives, for whose code
// `made_us` is taken at each new size. One thread; gigaflops count products with padding too.
#include <benchmark/benchmark.h>
#include <chrono>
#include <dlfcn.h>
#include <vector>

#include "jit/cpu/onednn/primitive.h"
#include "jit/cpu/onednn/windows.h"

namespace heddle::jit::onednn {
namespace {

struct Conv {
  std::int64_t size, channels, results, taps, stride = 1, groups = 1, dilation = 1;

  Problem problem() const {
    const std::int64_t pad = (taps - 1) * dilation / 2;
    const std::int64_t to = (size + 2 * pad - (taps - 1) * dilation - 1) / stride + 1;
    Problem p{.x = {1, channels, size, size},
              .weights = {results / groups, channels / groups, taps, taps},
              .result = {1, results, to, to},
              .strides = {stride, stride},
              .dilations = {dilation - 1, dilation - 1},
              .pads_low = {pad, pad},
              .pads_high = {pad, pad},
              .channels_last = true};
    if (groups > 1) p.weights.insert(p.weights.begin(), groups);
    return p;
  }
};

/// Layers of NudeNet, ResNet-50 and PP-OCR, and what else kernels of convolutions differ in.
constexpr Conv kConvs[] = {{160, 16, 32, 3, 2},      {80, 32, 64, 3, 2},   {40, 64, 128, 3, 2},
                           {20, 128, 256, 3, 2},     {56, 128, 128, 3, 2}, {28, 256, 256, 3, 2},
                           {14, 512, 512, 3, 2},     {56, 256, 512, 1, 2}, {14, 1024, 2048, 1, 2},
                           {7, 2048, 512, 1},        {7, 512, 512, 3},     {5, 64, 64, 3},
                           {28, 32, 32, 5},          {56, 32, 64, 7, 2},   {28, 64, 64, 3, 1, 1, 2},
                           {40, 96, 24, 3, 2},       {60, 16, 16, 3},      {14, 576, 576, 3, 1, 24},
                           {28, 256, 256, 3, 1, 32}, {56, 96, 96, 3, 1, 8}};

std::vector<float> floats(const Ints& sizes) {
  return std::vector<float>(static_cast<std::size_t>(elements_of(sizes)), 0.0625f);
}

struct Operands {
  std::vector<float> x, weights, result;
  explicit Operands(const Problem& p)
      : x(floats(p.x)), weights(floats(p.weights)), result(floats(p.result)) {}
};

void* aligned_at(std::vector<char>& bytes) {
  return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(bytes.data()) + 63) / 64 * 64);
}

void count(benchmark::State& state, const Problem& p) {
  const std::int64_t each = elements_of(p.weights) / p.result[1];
  state.counters["Gflops"] =
      benchmark::Counter(2.0 * static_cast<double>(elements_of(p.result) * each) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}

void windows(benchmark::State& state) {
  const Problem p = kConvs[state.range(0)].problem();
  Operands o(p);
  std::vector<float> packed = floats(window_weights(p));
  pack_window_weights(p, o.weights.data(), packed.data());
  std::vector<char> scratch(static_cast<std::size_t>(window_scratch(p)) + 64);
  for (auto _ : state)
    run_windows(p, o.x.data(), packed.data(), nullptr, nullptr, {}, o.result.data(),
                aligned_at(scratch));
  count(state, p);
}

/// oneDNN's loops run on OpenMP's threads.
void stay_on_this_thread() {
  using SetThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")))
    set(1);
}

void library(benchmark::State& state) {
  stay_on_this_thread();
  const Problem p = kConvs[state.range(0)].problem();
  Operands o(p);
  const FixedWeights weights{.data = o.weights.data()};
  const auto start = std::chrono::steady_clock::now();
  const Primitive primitive(p, Algorithm::Direct, false, weights);
  primitive.make();
  const std::chrono::duration<double, std::micro> made = std::chrono::steady_clock::now() - start;
  std::vector<char> scratch(static_cast<std::size_t>(primitive.scratch_bytes()) + 64);
  for (auto _ : state)
    primitive.run(o.x.data(), o.weights.data(), nullptr, o.result.data(), aligned_at(scratch));
  count(state, p);
  state.counters["made_us"] = made.count();
}

constexpr auto kLast = static_cast<std::int64_t>(std::size(kConvs)) - 1;
BENCHMARK(windows)->DenseRange(0, kLast);
BENCHMARK(library)->DenseRange(0, kLast);

}  // namespace
}  // namespace heddle::jit::onednn
