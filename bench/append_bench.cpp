// A token's attention behind caches of keys and values, which each call makes longer: copied with it, or appended to where
// they lie (EngineOptions::append). `again` calls from the same caches; `on` goes on for 256 tokens, each call at
// sizes not seen before, and tells the time of one.
//
// Arguments: tokens in the cache; whether calls append.
#include <benchmark/benchmark.h>
#include <string>
#include <vector>

#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

constexpr std::int64_t kHeads = 16, kKeyHeads = 4, kSize = 64;

constexpr const char* kStep = R"(graph @main(%query: f32[1, 16, 1, 64], %x: f32[1, 4, 1, 64],
                    %past_keys: f32[1, 4, s0, 64], %past_values: f32[1, 4, s0, 64]) {
  %new = mul(%x, 0.5: f32)
  %keys = concat(%past_keys, %new) {axis = 2}
  %values = concat(%past_values, %x) {axis = 2}
  %y = attention(%query, %keys, %values)
  return %y, %keys, %values
}
)";

Engine engine_of(const benchmark::State& state) {
  EngineOptions options;
  options.threads = 1;
  if (state.range(1) != 0) options.append = {"past_keys", "past_values"};
  return parse_ir(kStep, options);
}

std::vector<Tensor> inputs_of(const benchmark::State& state) {
  const Tensor cache = Tensor::full(f32, {1, kKeyHeads, state.range(0), kSize}, 0.01);
  return {Tensor::full(f32, {1, kHeads, 1, kSize}, 0.1),
          Tensor::full(f32, {1, kKeyHeads, 1, kSize}, 0.1), cache, cache.clone()};
}

void again(benchmark::State& state) {
  Engine engine = engine_of(state);
  std::vector<Tensor> inputs = inputs_of(state);
  {
    const std::vector<Tensor> first = engine.run(inputs);
    for (const std::size_t k : {1, 2})
      if (state.range(1) != 0) inputs[k + 1] = first[k].narrow(2, 0, state.range(0));
  }
  for (auto _ : state) benchmark::DoNotOptimize(engine.run(inputs));
}
BENCHMARK(again)->ArgsProduct({{255, 1023, 4095, 16383}, {0, 1}})->Unit(benchmark::kMicrosecond);

void on(benchmark::State& state) {
  constexpr int kTokens = 256;
  for (auto _ : state) {
    state.PauseTiming();
    Engine engine = engine_of(state);
    std::vector<Tensor> inputs = inputs_of(state);
    const auto next = [&] {
      std::vector<Tensor> outputs = engine.run(inputs);
      for (const std::size_t k : {1, 2}) inputs[k + 1] = std::move(outputs[k]);
    };
    next();
    state.ResumeTiming();
    for (int k = 0; k < kTokens; ++k) next();
  }
  state.counters["token"] = benchmark::Counter(
      kTokens, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(on)->ArgsProduct({{255, 1023, 4095, 16383}, {0, 1}})->Unit(benchmark::kMillisecond);

/// What a call takes for 48 caches of a few bytes: finding, claiming and giving back room, and beside it the same copied.
void caches_of_48(benchmark::State& state) {
  constexpr std::size_t kCaches = 48;
  std::string inputs, body, results;
  EngineOptions options;
  options.threads = 1;
  for (std::size_t k = 0; k < kCaches; ++k) {
    const std::string n = std::to_string(k);
    inputs += ", %c" + n + ": f32[1, s0, 4]";
    body += "  %d" + n + " = concat(%c" + n + ", %x) {axis = 1}\n";
    results += (k == 0 ? " %d" : ", %d") + n;
    if (state.range(0) != 0) options.append.insert("c" + n);
  }
  Engine engine = parse_ir(
      "graph @main(%x: f32[1, 1, 4]" + inputs + ") {\n" + body + "  return" + results + "\n}\n",
      options);
  std::vector<Tensor> given(kCaches + 1, Tensor::full(f32, {1, 4, 4}, 1));
  given[0] = Tensor::full(f32, {1, 1, 4}, 1);
  {
    const std::vector<Tensor> first = engine.run(given);
    for (std::size_t k = 0; k < kCaches; ++k)
      if (state.range(0) != 0) given[k + 1] = first[k].narrow(1, 0, 4);
  }
  for (auto _ : state) benchmark::DoNotOptimize(engine.run(given));
}
BENCHMARK(caches_of_48)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace heddle::bench
