// What a larger arena takes, with a first write to each of its pages: one that grows, beside a fresh one in its place.
#include <benchmark/benchmark.h>
#include <cstddef>

#include "memory/allocator.h"

namespace {

using heddle::memory::CachingAllocator;

constexpr std::size_t kPage = 4096;

void touch(void* block, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPage) static_cast<volatile char*>(block)[at] = 1;
}

/// range(0), range(1): MiB before and after; nothing is cached that would do.
template <typename F>
void larger(benchmark::State& state, F&& replace) {
  CachingAllocator& allocator = CachingAllocator::host();
  const auto before = static_cast<std::size_t>(state.range(0)) << 20;
  const auto after = static_cast<std::size_t>(state.range(1)) << 20;
  for (auto _ : state) {
    state.PauseTiming();
    void* block = allocator.allocate(before);
    touch(block, before);
    state.ResumeTiming();
    block = replace(allocator, block, after);
    touch(block, after);
    state.PauseTiming();
    allocator.release(block);
    allocator.trim();
    state.ResumeTiming();
  }
}

void fresh(benchmark::State& state) {
  larger(state, [](CachingAllocator& allocator, void* block, std::size_t bytes) {
    allocator.release(block);
    return allocator.allocate(bytes);
  });
}

void grown(benchmark::State& state) {
  larger(state, [](CachingAllocator& allocator, void* block, std::size_t bytes) {
    return allocator.grow(block, bytes);
  });
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({10, 12})->Args({16, 20})->Args({24, 40})->Args({8, 32});
  benchmark->Iterations(50)->Repetitions(5)->ReportAggregatesOnly();
  benchmark->Unit(benchmark::kMicrosecond);
}
BENCHMARK(fresh)->Apply(sizes);
BENCHMARK(grown)->Apply(sizes);

}  // namespace
