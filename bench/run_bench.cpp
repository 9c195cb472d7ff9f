// What a call costs beside its arithmetic: cached run, guard look-up with many sizes, bind of a new size.
#include <benchmark/benchmark.h>
#include <future>
#include <vector>

#include "engine/descriptor.h"
#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

hd::Tensor ones(hd::Sizes sizes) { return hd::Tensor::full(hd::f32, std::move(sizes), 1); }

void run_into_of_one_add(benchmark::State& state) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
  std::vector<hd::Tensor> inputs{ones({16})};
  std::vector<hd::Tensor> outputs{ones({16})};
  engine.run_into(inputs, outputs);
  for (auto _ : state) engine.run_into(inputs, outputs);
}
BENCHMARK(run_into_of_one_add);

void run_of_one_add(benchmark::State& state) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
  std::vector<hd::Tensor> inputs{ones({16})};
  engine.run(inputs);
  for (auto _ : state) benchmark::DoNotOptimize(engine.run(inputs));
}
BENCHMARK(run_of_one_add);

/// One engine called from several threads at once: real time of a call of any of them.
void run_into_from_threads(benchmark::State& state) {
  static hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
  std::vector<hd::Tensor> inputs{ones({16})};
  std::vector<hd::Tensor> outputs{ones({16})};
  engine.run_into(inputs, outputs);
  for (auto _ : state) engine.run_into(inputs, outputs);
}
BENCHMARK(run_into_from_threads)->ThreadRange(1, 4)->UseRealTime();

/// The same with fresh outputs, of which every thread holds the last ones.
void run_from_threads(benchmark::State& state) {
  static hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
  std::vector<hd::Tensor> inputs{ones({16})};
  std::vector<hd::Tensor> last = engine.run(inputs);
  for (auto _ : state) last = engine.run(inputs);
}
BENCHMARK(run_from_threads)->ThreadRange(1, 4)->UseRealTime();

/// A call on another thread, waited for: what it takes to hand it over and to hear of its end.
void submit_of_one_add(benchmark::State& state) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
  const hd::Tensor x = ones({16});
  engine.run({x});
  for (auto _ : state) benchmark::DoNotOptimize(engine.submit({x}).get());
}
BENCHMARK(submit_of_one_add)->UseRealTime();

/// The same of 64 calls that are all submitted before the first is waited for.
void submit_of_64_calls(benchmark::State& state) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
  const hd::Tensor x = ones({16});
  engine.run({x});
  std::vector<std::future<std::vector<hd::Tensor>>> calls(64);
  for (auto _ : state) {
    for (auto& call : calls) call = engine.submit({x});
    for (auto& call : calls) benchmark::DoNotOptimize(call.get());
  }
}
BENCHMARK(submit_of_64_calls)->UseRealTime();

hd::Tensor sixty_four_ops(const hd::Tensor& x) {
  hd::Tensor y = x;
  for (int k = 0; k < 32; ++k) y = y * 0.5 + 1;
  return y;
}

void run_into_of_64_tiny_ops(benchmark::State& state) {
  hd::Engine engine(sixty_four_ops);
  std::vector<hd::Tensor> inputs{ones({16})};
  std::vector<hd::Tensor> outputs{ones({16})};
  engine.run_into(inputs, outputs);
  for (auto _ : state) engine.run_into(inputs, outputs);
}
BENCHMARK(run_into_of_64_tiny_ops);

/// 100 of 1 M elements of a state change; range(0): whether in the caller's memory (1) or on a copy of it (0).
void update_of_a_state(benchmark::State& state) {
  hd::EngineOptions options;
  if (state.range(0) == 0) options.skip_passes = {"reinplace"};
  hd::Engine engine(
      [](const hd::Tensor& cache, const hd::Tensor& values, const hd::Tensor& at) {
        const hd::Tensor operands[] = {cache, values, at};
        hd::assign(cache, hd::apply("index_put", operands)[0]);
        return hd::sum(values, {0});
      },
      options);
  std::vector<std::int64_t> at(100);
  for (std::size_t k = 0; k < at.size(); ++k) at[k] = static_cast<std::int64_t>(k * 10007);
  const std::vector<hd::Tensor> inputs{ones({1'000'000}), ones({100}),
                                       hd::Tensor::of<std::int64_t>(at, {100})};
  std::vector<hd::Tensor> outputs{hd::Tensor::full(hd::f32, {}, 0)};
  engine.run_into(inputs, outputs);
  for (auto _ : state) engine.run_into(inputs, outputs);
}
BENCHMARK(update_of_a_state)->Arg(0)->Arg(1);

/// Packing and hashing the descriptors of eight inputs: the look-up but for its one probe and compare.
void pack_and_hash_eight_inputs(benchmark::State& state) {
  std::vector<hd::Tensor> inputs;
  for (std::int64_t k = 0; k < 8; ++k) inputs.push_back(ones({4, k + 1, 3}));
  for (auto _ : state) {
    const heddle::engine::PackedDescriptors packed(inputs, hd::Device::cpu());
    benchmark::DoNotOptimize(packed.hash());
  }
}
BENCHMARK(pack_and_hash_eight_inputs);

/// Cycles through `sizes` remembered plans.
void run_into_over_sizes(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; }, {.max_plans = 2048});
  std::vector<std::vector<hd::Tensor>> inputs, outputs;
  for (std::size_t k = 0; k < count; ++k) {
    inputs.push_back({ones({static_cast<std::int64_t>(k + 1)})});
    outputs.push_back({ones({static_cast<std::int64_t>(k + 1)})});
    engine.run_into(inputs[k], outputs[k]);
  }
  std::size_t next = 0;
  for (auto _ : state) {
    engine.run_into(inputs[next], outputs[next]);
    next = next + 1 == count ? 0 : next + 1;
  }
}
BENCHMARK(run_into_over_sizes)->Arg(1)->Arg(1000);

/// Every call has a size never seen: guards matched, plan bound, kernels reused.
void first_call_of_a_new_size(benchmark::State& state) {
  hd::Engine engine(sixty_four_ops, {.max_plans = 64});
  std::int64_t n = 1;
  for (auto _ : state) {
    state.PauseTiming();
    const hd::Tensor x = ones({n++});
    state.ResumeTiming();
    benchmark::DoNotOptimize(engine.run({x}));
  }
}
BENCHMARK(first_call_of_a_new_size)->Iterations(2000);

}  // namespace
