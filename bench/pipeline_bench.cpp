// From a callable to a plan, stage by stage: trace, each pass, lowering, order, memory, bind. The graph is the
// transformer encoder of the examples, its sizes symbolic.
#include <benchmark/benchmark.h>
#include <memory>
#include <string>
#include <vector>

#include "bench/traced.h"
#include "examples/transformer/encoder.h"

#include "engine/executable.h"
#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

void trace_of_chain(benchmark::State& state) {
  const auto chain = [&](const Tensor& x) {
    Tensor y = x;
    for (std::int64_t k = 0; k < state.range(0); k += 2) y = tanh(y + 1);
    return y;
  };
  const Tensor x = Tensor::full(f32, {4, 16}, 1);
  for (auto _ : state) benchmark::DoNotOptimize(trace(chain, x));
  state.counters["per_node"] = benchmark::Counter(
      static_cast<double>(state.range(0)),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(trace_of_chain)->Arg(10)->Arg(100)->Arg(1000)->Unit(benchmark::kMicrosecond);

const example::Encoder& encoder() {
  static const example::Encoder encoder(example::EncoderConfig{});
  return encoder;
}

Tensor ids(std::int64_t batch, std::int64_t length) {
  Tensor ids = Tensor::empty(i64, {batch, length});
  for (std::int64_t k = 0; k < ids.count(); ++k) ids.data_as<std::int64_t>()[k] = k % 97;
  return ids;
}

const Traced& traced_encoder() {
  static const Traced traced = trace(encoder(), ids(2, 32));
  return traced;
}

void trace_of_encoder(benchmark::State& state) {
  const Tensor input = ids(2, 32);
  for (auto _ : state) benchmark::DoNotOptimize(trace(encoder(), input));
  state.counters["nodes"] = static_cast<double>(traced_encoder().graph.nodes().size());
}
BENCHMARK(trace_of_encoder)->Unit(benchmark::kMicrosecond);

/// The graph as each pass of the pipeline finds it.
const std::vector<ir::Graph>& graphs_before_passes() {
  static const std::vector<ir::Graph> graphs = [] {
    std::vector<ir::Graph> graphs{traced_encoder().graph};
    for (const std::string_view name : ir::default_pipeline())
      graphs.push_back(ir::pass_named(name).run(graphs.back()));
    return graphs;
  }();
  return graphs;
}

/// One pass of the pipeline, named in the label.
void pass(benchmark::State& state) {
  const auto place = static_cast<std::size_t>(state.range(0));
  const ir::Pass& one = ir::pass_named(ir::default_pipeline()[place]);
  const ir::Graph& graph = graphs_before_passes()[place];
  for (auto _ : state) benchmark::DoNotOptimize(one.run(graph));
  state.SetLabel(std::string(one.name));
  state.counters["nodes"] = static_cast<double>(graph.nodes().size());
}
BENCHMARK(pass)
    ->DenseRange(0, static_cast<std::int64_t>(ir::default_pipeline().size()) - 1)
    ->Unit(benchmark::kMicrosecond);

void all_passes(benchmark::State& state, bool verify) {
  const ir::PipelineOptions options{.verify = verify};
  for (auto _ : state)
    benchmark::DoNotOptimize(
        ir::run_passes(traced_encoder().graph, ir::default_pipeline(), options));
}
BENCHMARK_CAPTURE(all_passes, alone, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(all_passes, verified_after_each, true)->Unit(benchmark::kMillisecond);

const jit::LowerOptions& lower_options() {
  static const jit::LowerOptions options{.library_available = jit::library_serves};
  return options;
}

const ir::Graph& optimised_encoder() {
  static const ir::Graph graph = ir::run_passes(traced_encoder().graph, ir::default_pipeline());
  return graph;
}

const jit::Program& lowered_encoder() {
  static const jit::Program program = jit::lower(optimised_encoder(), lower_options());
  return program;
}

void lower(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(jit::lower(optimised_encoder(), lower_options()));
  state.counters["steps"] = static_cast<double>(lowered_encoder().record.steps.size());
}
BENCHMARK(lower)->Unit(benchmark::kMillisecond);

void scheduler_order(benchmark::State& state) {
  const ir::ScheduleRecord& record = lowered_encoder().record;
  for (auto _ : state) benchmark::DoNotOptimize(scheduler::schedule(record, {}));
  state.counters["steps"] = static_cast<double>(record.steps.size());
}
BENCHMARK(scheduler_order)->Unit(benchmark::kMicrosecond);

std::shared_ptr<const engine::Executable> encoder_executable() {
  static jit::CompileService service(jit::CompileOptions{.disk_cache = false});
  static const auto executable =
      std::make_shared<const engine::Executable>(traced_encoder().graph, traced_encoder().guards,
                                                 engine::BuildOptions{EngineOptions{}, &service});
  return executable;
}

/// Lifetimes and what may share bytes, for any sizes.
void memory_plan(benchmark::State& state) {
  const scheduler::Schedule& schedule = encoder_executable()->schedule();
  const std::vector<std::uint32_t> stages = scheduler::stage_numbers(schedule);
  for (auto _ : state)
    benchmark::DoNotOptimize(memory::Planner(schedule.record, stages, memory::Planner::Options{}));
  state.counters["buffers"] = static_cast<double>(schedule.record.buffers.size());
}
BENCHMARK(memory_plan)->Unit(benchmark::kMicrosecond);

base::SymbolValues encoder_sizes() {
  const Tensor input = ids(3, 48);
  return encoder_executable()->guards().match(std::span(&input, 1)).sizes;
}

/// Offsets for given sizes.
void memory_bind(benchmark::State& state) {
  const base::SymbolValues sizes = encoder_sizes();
  const memory::Planner& planner = encoder_executable()->planner();
  for (auto _ : state) benchmark::DoNotOptimize(planner.bind(sizes));
  const memory::MemoryPlan plan = planner.bind(sizes);
  state.counters["over_lower_bound"] =
      static_cast<double>(plan.peak_bytes) / static_cast<double>(plan.lower_bound_bytes);
}
BENCHMARK(memory_bind)->Unit(benchmark::kMicrosecond);

/// The whole plan of sizes never seen: memory, addresses, arguments of every step.
void bind(benchmark::State& state) {
  const auto executable = encoder_executable();
  const base::SymbolValues sizes = encoder_sizes();
  for (auto _ : state) benchmark::DoNotOptimize(executable->bind(sizes, 1));
  state.counters["steps"] = static_cast<double>(executable->schedule().record.steps.size());
}
BENCHMARK(bind)->Unit(benchmark::kMicrosecond);

/// First calls of encoders of several depths, nothing cached: layers of one structure share kernels.
void encoder_by_layers(benchmark::State& state) {
  const example::Encoder deep({.layers = state.range(0)});
  const Tensor input = ids(2, 32);
  EngineStats stats;
  for (auto _ : state) {
    Engine engine(deep, {.threads = 1, .disk_cache = false});
    engine.prepare(std::span(&input, 1));
    stats = engine.stats();
  }
  state.counters["kernels"] = static_cast<double>(stats.kernels);
}
BENCHMARK(encoder_by_layers)->Arg(2)->Arg(4)->Arg(8)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle::bench
