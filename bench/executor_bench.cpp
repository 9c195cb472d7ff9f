// What forking a stage and joining it again costs, and what idle gaps between stages do to it.
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

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

constexpr std::int64_t kRowBytes = 256;

/// Copies rows from `code` to `state`.
void copy_rows(const BoundStep& step, std::int64_t begin, std::int64_t end, int, std::int32_t*) {
  std::memcpy(static_cast<char*>(step.state) + begin * kRowBytes,
              static_cast<const char*>(step.code) + begin * kRowBytes,
              static_cast<std::size_t>((end - begin) * kRowBytes));
}

/// A copy and a copy back, 16 times. range(0): threads; range(1): KiB of both buffers.
void stages_over_the_same_memory(benchmark::State& state) {
  Executor executor(static_cast<int>(state.range(0)));
  std::vector<char> one(static_cast<std::size_t>(state.range(1)) * 512, 1);
  std::vector<char> other(one.size());
  BoundStep steps[2];
  steps[0].run = copy_rows;
  steps[0].code = one.data();
  steps[0].state = other.data();
  steps[0].extent = static_cast<std::int64_t>(one.size()) / kRowBytes;
  steps[0].work = std::int64_t{1} << 30;
  steps[1] = steps[0];
  steps[1].code = other.data();
  steps[1].state = one.data();
  std::vector<BoundStage> stages;
  for (std::uint32_t k = 0; k < 32; ++k) stages.push_back({k % 2, 1});
  for (auto _ : state) benchmark::DoNotOptimize(executor.run(steps, stages));
  state.SetBytesProcessed(state.iterations() * 32 * state.range(1) * 1024);
}
BENCHMARK(stages_over_the_same_memory)
    ->ArgsProduct({{1, 2}, {128, 512, 1024, 1536, 8192}})
    ->UseRealTime();

}  // namespace
