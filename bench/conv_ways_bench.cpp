// The ways of computing a 3x3 convolution on the CPU, and which one the cost model takes: oneDNN's direct algorithm or
// Winograd's. Between two runs so many megabytes are read as a model's other parameters may have.
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

/// Channels of x, of the result, rows and columns of both, megabytes.
void ways(benchmark::State& state) {
  const std::int64_t in = state.range(0);
  const std::int64_t out = state.range(1);
  const std::int64_t size = state.range(2);
  const std::int64_t bytes = state.range(3) << 20;
  const std::vector<float> weights(static_cast<std::size_t>(in * out * 9), 0.0625f);
  const Ints x{1, size, size, in};
  const Ints result{1, size, size, out};
  LibraryCall call;
  call.name = "conv";
  call.attrs = {{"strides", Ints{1, 1}},   {"dilations", Ints{1, 1}},   {"pads_low", Ints{1, 1}},
                {"pads_high", Ints{1, 1}}, {"groups", std::int64_t{1}}, {"channels_last", true}};
  call.inputs = {meta(x), meta({out, in, 3, 3})};
  call.outputs = {meta(result)};
  call.node_inputs = 2;
  const std::vector<LibraryOperand> operands{
      {x, nullptr}, {{out, in, 3, 3}, weights.data()}, {result, nullptr}};
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

BENCHMARK(ways)
    ->ArgNames({"in", "out", "size", "MB"})
    ->ArgsProduct({{16, 32, 64, 128, 256, 512},
                   {16, 24, 32, 64, 128, 256, 512},
                   {4, 7, 10, 14, 28, 56},
                   {0, 4, 64}})
    ->UseManualTime()
    ->Iterations(1);

}  // namespace
}  // namespace heddle::jit
