// Guard look-up: which plan serves a call's inputs.
#include <benchmark/benchmark.h>
#include <memory>
#include <vector>

#include "engine/descriptor.h"
#include "engine/plan_cache.h"
#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

Tensor ones(Sizes sizes) { return Tensor::full(f32, std::move(sizes), 1); }

std::vector<Tensor> eight_inputs(std::int64_t size) {
  std::vector<Tensor> inputs;
  for (std::int64_t k = 0; k < 8; ++k) inputs.push_back(ones({4, k + 1, size}));
  return inputs;
}

std::unique_ptr<engine::BoundPlan> plan_for(std::span<const Tensor> inputs) {
  const engine::PackedDescriptors packed(inputs, Device::cpu());
  auto plan = std::make_unique<engine::BoundPlan>();
  plan->words.assign(packed.words().begin(), packed.words().end());
  plan->hash = packed.hash();
  return plan;
}

/// What a call does to find a plan that the memo knows: packs and hashes the descriptors of 8 inputs, enters as a
/// reader, probes, compares. `range(0)` plans are asked for in turn.
void hot_lookup_with_8_inputs(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  engine::PlanCache plans(2048);
  std::vector<std::vector<Tensor>> inputs;
  for (std::size_t k = 0; k < count; ++k) {
    inputs.push_back(eight_inputs(static_cast<std::int64_t>(k + 1)));
    plans.insert(plan_for(inputs.back()));
  }
  std::size_t next = 0;
  for (auto _ : state) {
    const engine::Reclaimer::Reader reader(plans.reclaimer());
    const engine::PackedDescriptors packed(inputs[next], Device::cpu());
    const engine::BoundPlan* plan = plans.find(packed.words(), packed.hash());
    benchmark::DoNotOptimize(plan);
    if (plan == nullptr) state.SkipWithError("a plan was not found");
    next = next + 1 == count ? 0 : next + 1;
  }
}
BENCHMARK(hot_lookup_with_8_inputs)->Arg(1)->Arg(64)->Arg(1000);

/// Branches on a size, so that each of the first 64 makes an executable of its own.
Tensor by_columns(const Tensor& x) {
  for (int k = 1; k <= 64; ++k)
    if (x.size(1) == k) return x + k;
  return x;
}

/// An engine with `range(0)` executables whose memo knows every call, or, with `range(1)` rows that
/// change from call to call, none: guards are tried one executable after another and a plan is bound.
void run_with_executables(benchmark::State& state) {
  const std::int64_t executables = state.range(0);
  const bool cold = state.range(1) != 0;
  Engine engine(by_columns, {.threads = 1, .max_plans = cold ? 2u : 4096u});
  std::vector<std::vector<Tensor>> inputs, outputs;
  const std::int64_t rows = cold ? 16 : 1;
  for (std::int64_t row = 1; row <= rows; ++row) {
    for (std::int64_t k = 1; k <= executables; ++k) {
      inputs.push_back({ones({row, k})});
      outputs.push_back({ones({row, k})});
      engine.run_into(inputs.back(), outputs.back());
    }
  }
  std::size_t next = 0;
  for (auto _ : state) {
    engine.run_into(inputs[next], outputs[next]);
    next = next + 1 == inputs.size() ? 0 : next + 1;
  }
  state.counters["executables"] = static_cast<double>(engine.stats().compiles);
}
BENCHMARK(run_with_executables)
    ->ArgNames({"executables", "cold"})
    ->Args({1, 0})
    ->Args({64, 0})
    ->Args({1, 1})
    ->Args({64, 1});

/// A thousand sizes of one executable in turn: in the memo, or bound anew each time.
void run_over_1000_sizes(benchmark::State& state) {
  const bool cold = state.range(0) != 0;
  Engine engine([](const Tensor& x) { return x + 1; },
                {.threads = 1, .max_plans = cold ? 2u : 2048u});
  std::vector<std::vector<Tensor>> inputs, outputs;
  for (std::int64_t k = 1; k <= 1000; ++k) {
    inputs.push_back({ones({k})});
    outputs.push_back({ones({k})});
    engine.run_into(inputs.back(), outputs.back());
  }
  std::size_t next = 0;
  for (auto _ : state) {
    engine.run_into(inputs[next], outputs[next]);
    next = next + 1 == inputs.size() ? 0 : next + 1;
  }
  state.counters["compiles"] = static_cast<double>(engine.stats().compiles);
}
BENCHMARK(run_over_1000_sizes)->ArgName("cold")->Arg(0)->Arg(1);

}  // namespace
}  // namespace heddle::bench
