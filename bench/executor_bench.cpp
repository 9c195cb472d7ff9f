// What forking a stage and joining it again costs, and what idle gaps between stages do to it.
#include <benchmark/benchmark.h>
#include <chrono>
#include <thread>

#include "scheduler/executor.h"

namespace {

using heddle::scheduler::BoundStage;
using heddle::scheduler::BoundStep;
using heddle::scheduler::Executor;

void touch(const BoundStep& step, std::int64_t begin, std::int64_t, int, std::int32_t*) {
  const_cast<std::int64_t*>(step.sizes)[begin] += 1;
}

/// range(0): threads; range(1): microseconds without work between two calls.
void fork_and_join(benchmark::State& state) {
  Executor executor(static_cast<int>(state.range(0)));
  std::int64_t counts[1024] = {};
  BoundStep step;
  step.run = touch;
  step.sizes = counts;
  step.extent = 1024;
  step.work = std::int64_t{1} << 30;
  const BoundStage stage{0, 1};
  for (auto _ : state) {
    if (state.range(1) != 0) {
      state.PauseTiming();
      std::this_thread::sleep_for(std::chrono::microseconds(state.range(1)));
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(executor.run({&step, 1}, {&stage, 1}));
  }
}
BENCHMARK(fork_and_join)->ArgsProduct({{1, 2, 4}, {0}})->UseRealTime();
BENCHMARK(fork_and_join)->Args({2, 1000})->Iterations(200)->UseRealTime();

}  // namespace
