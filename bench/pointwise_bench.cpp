// Fused pointwise kernels and row loops, and the time to compile one.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "bench/machine.h"
#include "bench/mixed_by_hand.h"

#include "jit/compile_service.h"
#include "jit/nest_builder.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

CompileService& service() {
  static CompileService service(CompileOptions{.disk_cache = false});
  return service;
}

using Chain = Scalar (*)(NestBuilder&, Scalar x, Scalar y);

/// 8 cheap operations.
Scalar cheap_ops(NestBuilder& b, Scalar x, Scalar y) {
  const auto c = [&](double v) { return b.constant(f32, v); };
  Scalar t = b.apply(ScalarOp::Add, {x, y});
  t = b.apply(ScalarOp::Mul, {t, c(0.5)});
  t = b.apply(ScalarOp::Sub, {t, x});
  t = b.apply(ScalarOp::Abs, {t});
  t = b.apply(ScalarOp::Mul, {t, y});
  t = b.apply(ScalarOp::Max, {t, c(-3)});
  t = b.apply(ScalarOp::Min, {t, c(3)});
  return b.apply(ScalarOp::Add, {t, c(1)});
}

/// 20 operations, 5 of them transcendental, 2 divisions and a root.
Scalar mixed_ops(NestBuilder& b, Scalar x, Scalar y) {
  const auto c = [&](double v) { return b.constant(f32, v); };
  Scalar t = cheap_ops(b, x, y);
  t = b.apply(ScalarOp::Tanh, {t});
  t = b.apply(ScalarOp::Mul, {t, x});
  t = b.apply(ScalarOp::Exp, {t});
  t = b.apply(ScalarOp::Add, {t, c(1)});
  t = b.apply(ScalarOp::Log, {t});
  t = b.apply(ScalarOp::Div, {t, c(1.7)});
  t = b.apply(ScalarOp::Sigmoid, {t});
  t = b.apply(ScalarOp::Sub, {t, y});
  t = b.apply(ScalarOp::Erf, {t});
  t = b.apply(ScalarOp::Abs, {t});
  t = b.apply(ScalarOp::Sqrt, {t});
  return b.apply(ScalarOp::Neg, {t});
}

/// out[i] = chain(in0[i], in1[i]) in chunks of 4096.
Nest pointwise_nest(Chain chain, double variant = 0) {
  constexpr std::int64_t kChunk = 4096;
  NestBuilder b("pointwise");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f32, n);
  const auto y = b.add_global(f32, n);
  const auto out = b.add_global(f32, n);
  const Symbol p = b.new_axis(ceildiv(n, kChunk));
  b.set_parallel(p, ceildiv(n, kChunk));
  const SymExpr extent = min(n - SymExpr(p) * kChunk, kChunk);
  const Symbol i = b.new_axis(extent);
  b.begin_for(i, extent, ForStmt::Kind::Vector);
  const SymExpr at = SymExpr(p) * kChunk + SymExpr(i);
  Scalar value = chain(b, b.load(x, at), b.load(y, at));
  if (variant != 0) value = b.apply(ScalarOp::Add, {value, b.constant(f32, variant)});
  b.store(out, at, value);
  b.end_for();
  return b.finish();
}

struct Arrays {
  explicit Arrays(std::int64_t count)
      : x(static_cast<std::size_t>(count)), y(x.size()), out(x.size()) {
    for (std::size_t k = 0; k < x.size(); ++k) {
      x[k] = static_cast<float>(k % 97) * 0.05f - 2;
      y[k] = static_cast<float>(k % 89) * 0.03f - 1;
    }
  }
  std::vector<float> x, y, out;
  void* const* buffers() {
    pointers[0] = x.data();
    pointers[1] = y.data();
    pointers[2] = out.data();
    return pointers;
  }
  void* pointers[3];
};

double seconds_for(const CpuKernel& kernel, std::int64_t count, int repeats) {
  Arrays arrays(count);
  std::int32_t status = 0;
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    const double start = bench::thread_seconds();
    for (int k = 0; k < repeats; ++k)
      kernel.entry(arrays.buffers(), &count, 0, (count + 4095) / 4096, nullptr, &status);
    best = std::min(best, (bench::thread_seconds() - start) / repeats);
  }
  return best;
}

/// One function of vector math, of x or of x and y, over what stays in the second-level cache.
template <ScalarOp op>
Scalar function_of(NestBuilder& b, Scalar x, Scalar y) {
  if (op == ScalarOp::Pow || op == ScalarOp::Atan2) return b.apply(op, {x, y});
  return b.apply(op, {x});
}

void math(benchmark::State& state, Chain chain) {
  std::int64_t count = 1 << 15;
  const CpuKernelPtr kernel = service().compile(pointwise_nest(chain));
  Arrays arrays(count);
  std::int32_t status = 0;
  for (auto _ : state) kernel->entry(arrays.buffers(), &count, 0, count / 4096, nullptr, &status);
  state.counters["elements"] =
      benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(math, exp, function_of<ScalarOp::Exp>);
BENCHMARK_CAPTURE(math, log, function_of<ScalarOp::Log>);
BENCHMARK_CAPTURE(math, log2, function_of<ScalarOp::Log2>);
BENCHMARK_CAPTURE(math, log1p, function_of<ScalarOp::Log1p>);
BENCHMARK_CAPTURE(math, tanh, function_of<ScalarOp::Tanh>);
BENCHMARK_CAPTURE(math, erf, function_of<ScalarOp::Erf>);
BENCHMARK_CAPTURE(math, sigmoid, function_of<ScalarOp::Sigmoid>);
BENCHMARK_CAPTURE(math, sin, function_of<ScalarOp::Sin>);
BENCHMARK_CAPTURE(math, asin, function_of<ScalarOp::Asin>);
BENCHMARK_CAPTURE(math, atan, function_of<ScalarOp::Atan>);
BENCHMARK_CAPTURE(math, pow, function_of<ScalarOp::Pow>);
BENCHMARK_CAPTURE(math, atan2, function_of<ScalarOp::Atan2>);

/// Time over the time that the same arithmetic takes on data that stays in the first-level cache.
void pointwise(benchmark::State& state, Chain chain) {
  const std::int64_t count = state.range(0);
  const CpuKernelPtr kernel = service().compile(pointwise_nest(chain));
  Arrays arrays(count);
  std::int32_t status = 0;
  const double floor = seconds_for(*kernel, 2048, 200) / 2048 * static_cast<double>(count);
  for (auto _ : state)
    kernel->entry(arrays.buffers(), &count, 0, (count + 4095) / 4096, nullptr, &status);
  state.counters["over_floor"] = benchmark::Counter(
      floor, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["elements"] =
      benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(pointwise, mixed_20, mixed_ops)->Arg(1 << 16)->Arg(1 << 20);
BENCHMARK_CAPTURE(pointwise, cheap_8, cheap_ops)->Arg(1 << 16)->Arg(1 << 20);

double seconds_by_hand(std::int64_t count, int repeats) {
  Arrays arrays(count);
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    const double start = bench::thread_seconds();
    for (int k = 0; k < repeats; ++k) {
      bench::by_hand::mixed_ops(arrays.x.data(), arrays.y.data(), arrays.out.data(), count);
      benchmark::ClobberMemory();
    }
    best = std::min(best, (bench::thread_seconds() - start) / repeats);
  }
  return best;
}

/// The generated kernel's time over that of the same arithmetic with intrinsics in the first-level cache.
void mixed_20_against_by_hand(benchmark::State& state) {
  if (!__builtin_cpu_supports("avx512dq")) {
    state.SkipWithError("written for AVX-512");
    return;
  }
  const std::int64_t count = state.range(0);
  const CpuKernelPtr kernel = service().compile(pointwise_nest(mixed_ops));
  Arrays arrays(count);
  std::int32_t status = 0;
  const double floor = seconds_by_hand(2048, 400) / 2048 * static_cast<double>(count);
  for (auto _ : state)
    kernel->entry(arrays.buffers(), &count, 0, (count + 4095) / 4096, nullptr, &status);
  // Time an iteration over the floor: an inverted rate of 1 / floor.
  state.counters["time_over_floor"] = benchmark::Counter(
      floor, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.SetLabel("floor: its arithmetic");
}
BENCHMARK(mixed_20_against_by_hand)->Arg(1 << 16)->Arg(1 << 20);

/// softmax over rows: maximum, exponentials and their sum, scaling.
Nest softmax_nest() {
  NestBuilder b("softmax");
  b.nest().size_count = 2;
  const SymExpr rows = SymExpr::size(0);
  const SymExpr n = SymExpr::size(1);
  const auto x = b.add_global(f32, rows * n);
  const auto out = b.add_global(f32, rows * n);
  const Symbol row = b.new_axis(rows);
  b.set_parallel(row, rows);
  const auto at = [&](Symbol i) { return SymExpr(row) * n + SymExpr(i); };
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  const Scalar value = b.load(x, at(i));
  const Scalar largest = b.reduce(ir::ReduceOp::Max, f32, std::array{value})[0];
  b.end_for();
  const Symbol j = b.new_axis(n);
  b.begin_for(j, n, ForStmt::Kind::Vector);
  const Scalar shifted = b.apply(ScalarOp::Sub, {b.load(x, at(j)), largest});
  const Scalar e = b.apply(ScalarOp::Exp, {shifted});
  b.store(out, at(j), e);
  const Scalar sum = b.reduce(ir::ReduceOp::Sum, f32, std::array{e})[0];
  b.end_for();
  const Scalar scale = b.apply(ScalarOp::Reciprocal, {sum});
  const Symbol k = b.new_axis(n);
  b.begin_for(k, n, ForStmt::Kind::Vector);
  b.store(out, at(k), b.apply(ScalarOp::Mul, {b.load(out, at(k)), scale}));
  b.end_for();
  return b.finish();
}

void softmax(benchmark::State& state) {
  const std::int64_t sizes[] = {state.range(0), state.range(1)};
  const CpuKernelPtr kernel = service().compile(softmax_nest());
  std::vector<float> x(static_cast<std::size_t>(sizes[0] * sizes[1]), 0.5f);
  std::vector<float> out(x.size());
  void* const buffers[] = {x.data(), out.data()};
  std::int32_t status = 0;
  for (auto _ : state) kernel->entry(buffers, sizes, 0, sizes[0], nullptr, &status);
  state.counters["bytes"] = benchmark::Counter(static_cast<double>(8 * x.size()),
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(softmax)->Args({512, 1024})->Args({512, 768});

/// A nest that was never compiled before.
Nest new_nest(Chain chain) {
  static double variant = 0;
  return pointwise_nest(chain, variant += 1);
}

void compile_cold(benchmark::State& state, Chain chain) {
  for (auto _ : state) {
    state.PauseTiming();
    const Nest nest = new_nest(chain);
    state.ResumeTiming();
    benchmark::DoNotOptimize(service().compile(nest));
  }
}
BENCHMARK_CAPTURE(compile_cold, cheap_8, cheap_ops)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile_cold, mixed_20, mixed_ops)->Unit(benchmark::kMillisecond);

void compile_from_disk(benchmark::State& state) {
  const auto folder = std::filesystem::temp_directory_path() / "heddle_pointwise_bench";
  const CompileOptions options{.cache_folder = folder.string()};
  const Nest nest = pointwise_nest(mixed_ops);
  CompileService(options).compile(nest);
  for (auto _ : state) {
    state.PauseTiming();
    auto fresh = std::make_unique<CompileService>(options);
    state.ResumeTiming();
    benchmark::DoNotOptimize(fresh->compile(nest));
    state.PauseTiming();
    fresh.reset();
    state.ResumeTiming();
  }
  std::filesystem::remove_all(folder);
}
BENCHMARK(compile_from_disk)->Unit(benchmark::kMicrosecond);

void compile_in_memory(benchmark::State& state) {
  const Nest nest = pointwise_nest(mixed_ops);
  for (auto _ : state) benchmark::DoNotOptimize(service().compile(nest));
}
BENCHMARK(compile_in_memory)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace heddle::jit
