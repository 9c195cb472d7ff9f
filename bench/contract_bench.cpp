// Tile contractions against the machine's multiply-add rate, measured in the same run.
#include <benchmark/benchmark.h>
#include <vector>

#include "bench/machine.h"

#include "jit/compile_service.h"
#include "jit/nest_builder.h"

namespace heddle::jit {
namespace {

CompileService& service() {
  static CompileService service(CompileOptions{.disk_cache = false});
  return service;
}

enum class Layout { Contiguous, Packed, Transposed };

/// acc = a [rows, depth] times b [depth, columns], one tile.
CpuKernelPtr compile_tile(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t depth,
                          Layout layout) {
  NestBuilder builder("contract");
  const auto a = builder.add_global(dtype, rows * depth);
  const auto b = builder.add_global(dtype, depth * columns);
  const auto out = builder.add_global(f32, columns);
  const auto acc = builder.add_local(f32, rows * columns, rows * columns);
  builder.set_parallel(builder.new_axis(1), 1);
  ContractStmt s;
  s.acc = acc;
  s.dtype = f32;
  s.tile_rows = rows;
  s.tile_columns = columns;
  s.rows = rows;
  s.columns = columns;
  s.depth = depth;
  s.a = layout == Layout::Packed ? TileOperand{a, 0, 1, rows} : TileOperand{a, 0, depth, 1};
  s.b = layout == Layout::Transposed ? TileOperand{b, 0, 1, depth} : TileOperand{b, 0, columns, 1};
  builder.contract(s);
  builder.nest().buffers[acc].read = true;
  const Symbol n = builder.new_axis(columns);
  builder.begin_for(n, columns, ForStmt::Kind::Vector);
  builder.store(out, n, builder.load(acc, n));
  builder.end_for();
  return service().compile(builder.finish());
}

void tile(benchmark::State& state, DType dtype, Layout layout) {
  const std::int64_t rows = state.range(0);
  const std::int64_t columns = state.range(1);
  const std::int64_t depth = state.range(2);
  const CpuKernelPtr kernel = compile_tile(dtype, rows, columns, depth, layout);
  // Ones in f32; the 16-bit dtypes read the same bytes, which are finite in each.
  std::vector<float> a(static_cast<std::size_t>(rows * depth), 1.0f);
  std::vector<float> b(static_cast<std::size_t>(depth * columns), 1.0f);
  std::vector<float> out(static_cast<std::size_t>(columns));
  void* const buffers[] = {a.data(), b.data(), out.data()};
  static const double peak = bench::measured_fma_gflops();
  std::int32_t status = 0;
  for (auto _ : state) kernel->entry(buffers, nullptr, 0, 1, nullptr, &status);
  const double flops = 2.0 * static_cast<double>(rows * columns * depth);
  state.counters["gflops"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] =
      benchmark::Counter(flops * 1e-9 / peak, benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK_CAPTURE(tile, f32, f32, Layout::Contiguous)
    ->Args({6, 64, 256})
    ->Args({6, 64, 768})
    ->Args({14, 32, 256})
    ->Args({32, 64, 768})
    ->Args({1, 64, 256})
    ->Args({5, 60, 256});
BENCHMARK_CAPTURE(tile, f32_packed, f32, Layout::Packed)->Args({6, 64, 256})->Args({14, 32, 256});
BENCHMARK_CAPTURE(tile, f32_transposed, f32, Layout::Transposed)
    ->Args({6, 64, 256})
    ->Args({32, 64, 256});
BENCHMARK_CAPTURE(tile, bf16, bf16, Layout::Contiguous)->Args({6, 64, 256});
BENCHMARK_CAPTURE(tile, f16, f16, Layout::Contiguous)->Args({6, 64, 256});

}  // namespace
}  // namespace heddle::jit
