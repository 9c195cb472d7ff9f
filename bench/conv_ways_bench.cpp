// The ways of computing a convolution of 3x3, or of 1x3 or 1x5 along a row, on the CPU, and which one the cost model takes: the
// direct algorithm or Winograd's. Between two runs so many megabytes are read as a model's other parameters may have.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <vector>

#include "heddle/error.h"
#include "jit/library.h"
#include "jit/library_choice.h"

namespace heddle::jit {
namespace {

using Ints = std::vector<std::int64_t>;

ir::TensorMeta meta(const Ints& sizes) {
  ir::Dims dims;
  for (const std::int64_t size : sizes) dims.emplace_back(size);
  return ir::TensorMeta::of(DType::F32, dims);
}

void measure(benchmark::State& state, std::int64_t rows, std::int64_t columns, const Ints& kernel) {
  const std::int64_t in = state.range(0);
  const std::int64_t out = state.range(1);
  const std::int64_t bytes = state.range(3) << 20;
  const std::vector<float> weights(static_cast<std::size_t>(in * out * kernel[0] * kernel[1]),
                                   0.0625f);
  const Ints filters{out, in, kernel[0], kernel[1]};
  const Ints pads{kernel[0] / 2, kernel[1] / 2};
  const Ints x{1, rows, columns, in};
  const Ints result{1, rows, columns, out};
  LibraryCall call;
  call.name = "conv";
  call.attrs = {{"strides", Ints{1, 1}}, {"dilations", Ints{1, 1}},   {"pads_low", pads},
                {"pads_high", pads},     {"groups", std::int64_t{1}}, {"channels_last", true}};
  call.inputs = {meta(x), meta(filters)};
  call.outputs = {meta(result)};
  call.node_inputs = 2;
  const std::vector<LibraryOperand> operands{
      {x, nullptr}, {filters, weights.data()}, {result, nullptr}};
  try {
    const LibraryChoice choice = *bind_library_call(call, operands, 1, {.bytes = bytes})->choice();
    for (auto _ : state) {
      const std::vector<double> seconds = seconds_of_ways(call, operands, 1, bytes);
      state.SetIterationTime(seconds[choice.way]);
      for (std::size_t way = 0; way < seconds.size(); ++way)
        state.counters[choice.ways[way] + "_us"] = seconds[way] * 1e6;
      const double least = *std::ranges::min_element(seconds);
      state.counters["lost"] = seconds[choice.way] / least - 1;
    }
  } catch (const CompileError& error) {
    state.SkipWithError(error.what());
  }
}

/// Channels of x, of the result, rows and columns of both, megabytes.
void ways(benchmark::State& state) { measure(state, state.range(2), state.range(2), {3, 3}); }

/// The same of a row of so many columns.
void ways_of_3(benchmark::State& state) { measure(state, 1, state.range(2), {1, 3}); }
void ways_of_5(benchmark::State& state) { measure(state, 1, state.range(2), {1, 5}); }

BENCHMARK(ways)
    ->ArgNames({"in", "out", "size", "MB"})
    ->ArgsProduct({{16, 32, 64, 128, 256, 512},
                   {16, 24, 32, 64, 128, 256, 512},
                   {4, 7, 10, 14, 28, 56},
                   {0, 4, 64}})
    ->UseManualTime()
    ->Iterations(1);

void sizes_of_rows(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"in", "out", "size", "MB"})
      ->ArgsProduct({{16, 64, 128, 256, 512}, {16, 64, 256, 512}, {16, 64, 256, 1500}, {0, 64}})
      ->UseManualTime()
      ->Iterations(1);
}
BENCHMARK(ways_of_3)->Apply(sizes_of_rows);
BENCHMARK(ways_of_5)->Apply(sizes_of_rows);

}  // namespace
}  // namespace heddle::jit
