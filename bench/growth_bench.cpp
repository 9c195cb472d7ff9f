// How the time of each stage grows with the graph: 1,000 to 100,000 nodes of several shapes through trace,
// passes, partition into regions, lowering, schedule, memory plan, and the same on four CUDA streams.
//
// After the benchmarks a table says for each shape and stage of the three largest graphs, by their shortest runs: the a of the fit
// t = a n log2 n, how far that fit is off (root mean square, relative), the exponent e of the fit t = c n^e, and the
// exponent that n log n has there. HEDDLE_BENCH_NODES: the largest graph (100000).
#include <benchmark/benchmark.h>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/traced.h"

#include "engine/compile_scope.h"
#include "heddle/heddle.h"
#include "ir/passes/form_regions.h"
#include "jit/library.h"
#include "jit/program.h"
#include "memory/planner.h"
#include "scheduler/order.h"
#include "scheduler/streams.h"

namespace heddle::bench {
namespace {

using Shape = std::function<Tensor(const Tensor& x, std::int64_t nodes)>;

/// One after another.
Tensor chain(const Tensor& x, std::int64_t nodes) {
  Tensor y = x;
  for (std::int64_t k = 0; k < nodes; k += 2) y = tanh(y + 1);
  return y;
}

Tensor sum_of(std::vector<Tensor> terms) {
  while (terms.size() > 1) {
    std::vector<Tensor> next;
    for (std::size_t k = 0; k + 1 < terms.size(); k += 2) next.push_back(terms[k] + terms[k + 1]);
    if (terms.size() % 2 == 1) next.push_back(terms.back());
    terms = std::move(next);
  }
  return terms[0];
}

/// Branches of a few nodes, added up by a tree.
Tensor wide(const Tensor& x, std::int64_t nodes) {
  std::vector<Tensor> branches;
  for (std::int64_t k = 0; k < nodes; k += 6)
    branches.push_back(exp(tanh(x * static_cast<double>(k)) + x));
  return sum_of(std::move(branches));
}

/// Layers of contractions, normalisations and views, with an edge around each layer.
Tensor layered(const Tensor& x, std::int64_t nodes) {
  static const Tensor weights = Tensor::full(f32, {16, 16}, 0.01);
  Tensor y = x;
  for (std::int64_t k = 0; k < nodes; k += 16) {
    const Tensor heads = permute(reshape(matmul(y, weights), {y.size(0), 4, 4}), {1, 0, 2});
    const Tensor back = reshape(permute(softmax(heads * 0.5, -1), {1, 0, 2}), {y.size(0), 16});
    y = y + slice(concat(std::vector<Tensor>{back, back}, 1), 1, 8, 24);
  }
  return y;
}

/// Blocks that carry one of two marks with unmarked nodes between them; each reads the block before its own.
Tensor marked(const Tensor& x, std::int64_t nodes) {
  Tensor y = x;
  Tensor before = x;
  for (std::int64_t k = 0; k < nodes; k += 5) {
    Tensor z;
    {
      const Annotate region{{"compile", k / 5 % 2 == 0 ? "even" : "odd"}};
      z = tanh(y * 2.0) + before;
    }
    before = y;
    y = sin(z);
  }
  return y;
}

/// A chain and nodes beside it, half of which wait for the chain, as every second node of the chain waits for
/// one of them.
Tensor ordered(const Tensor& x, std::int64_t nodes) {
  Tensor main = x;
  std::vector<Tensor> beside{x};
  for (std::int64_t k = 0; k < nodes; k += 7) {
    const Tensor& first = beside[beside.size() / 2];
    const Tensor next = after({first}, [&] { return tanh(main) + 1; });
    const Tensor free = exp(x * static_cast<double>(k));
    beside.push_back(after({main}, [&] { return sum(free, {1}, true); }));
    main = next;
  }
  beside.push_back(main);
  return sum_of(std::move(beside));
}

/// Branches of a size of their own that no kernel joins: as many buffers as nodes, of many sizes.
Tensor uneven(const Tensor& x, std::int64_t nodes) {
  std::vector<Tensor> branches;
  for (std::int64_t k = 0; k < nodes; k += 5) {
    const Tensor own = pad(x * static_cast<double>(k), {0, 0}, {0, k % 997});
    branches.push_back(sum(cumsum(own, 1), {1}, true));
  }
  return sum_of(std::move(branches));
}

/// The partition's worst case: as many regions as nodes can make, each with a node before and after a path that none of
/// them is on.
Tensor pools(const Tensor& x, std::int64_t nodes) {
  const auto in_pool = [](std::int64_t pool, const Tensor& t) {
    const Annotate region{{"compile", "r" + std::to_string(pool)}};
    return tanh(t);
  };
  const std::int64_t count = nodes / 6;
  Tensor path = x;
  for (std::int64_t k = 0; k < count; ++k) path = path + in_pool(k, x * static_cast<double>(k));
  for (std::int64_t k = 0; k < count; ++k) path = sin(path);
  std::vector<Tensor> ends;
  for (std::int64_t k = 0; k < count; ++k) ends.push_back(in_pool(k, path));
  return sum_of(std::move(ends));
}

/// The worst case of streams: rows of steps that no kernel joins, each of which reads two of the row before, so that bytes
/// are given from stream to stream.
Tensor lattice(const Tensor& x, std::int64_t nodes) {
  std::vector<Tensor> row;
  for (int k = 0; k < 16; ++k) row.push_back(cumsum(x * static_cast<double>(k), 1));
  for (std::int64_t made = 32; made < nodes; made += 32) {
    std::vector<Tensor> next;
    for (std::size_t k = 0; k < row.size(); ++k)
      next.push_back(cumsum(row[k] + row[(k * 5 + 3) % row.size()], 1));
    row = std::move(next);
  }
  return sum_of(std::move(row));
}

struct NamedShape {
  const char* name;
  Shape build;
};
const NamedShape kShapes[] = {{"chain", chain},   {"wide", wide},       {"layered", layered},
                              {"marked", marked}, {"ordered", ordered}, {"uneven", uneven},
                              {"pools", pools},   {"lattice", lattice}};

/// What each stage leaves for the next, of one shape and size.
struct Pipeline {
  const Shape* shape = nullptr;
  std::int64_t nodes = 0;
  Traced traced;
  ir::Graph formed;
  engine::OptimisedGraph optimised;
  jit::Program program;
  scheduler::Schedule schedule;
  scheduler::StreamPlan streams;

  void trace_it() {
    const Tensor x = Tensor::full(f32, {4, 16}, 0.5);
    traced = trace([&](const Tensor& input) { return (*shape)(input, nodes); }, x);
  }
  void partition() {
    formed = ir::form_regions(traced.graph, [](const ir::Node& node) {
      return ir::region_mark(node.annotations(), node.location());
    });
  }
  /// All of partition, each region's passes and those of the rest.
  void passes() { optimised = engine::optimise(traced.graph, EngineOptions{}); }
  void lower() {
    jit::LowerOptions options{.library_available = jit::library_serves};
    options.rest = optimised.rest;
    options.units = optimised.units;
    program = jit::lower(optimised.graph, options);
  }
  void order() { schedule = scheduler::schedule(program.record, {}); }
  void deal_out() { streams = scheduler::assign_streams(schedule.record, 4); }
  void plan(const ir::StepClocks* clocks) const {
    const memory::Planner planner(schedule.record, scheduler::stage_numbers(schedule),
                                  memory::Planner::Options{.clocks = clocks});
    base::SymbolValues sizes;
    std::vector<base::Symbol> symbols;
    for (const ir::PlanBuffer& buffer : schedule.record.buffers)
      buffer.bytes.collect_symbols(symbols);
    for (const base::Symbol& symbol : symbols) sizes.try_emplace(symbol, 4);
    benchmark::DoNotOptimize(planner.bind(sizes));
  }
};

struct Stage {
  const char* name;
  void (*run)(Pipeline&);
  bool is_long = false;  ///< seconds
};
const Stage kStages[] = {{"trace", [](Pipeline& p) { p.trace_it(); }},
                         {"partition", [](Pipeline& p) { p.partition(); }},
                         {"passes", [](Pipeline& p) { p.passes(); }, true},
                         {"lower", [](Pipeline& p) { p.lower(); }, true},
                         {"schedule", [](Pipeline& p) { p.order(); }},
                         {"memory", [](Pipeline& p) { p.plan(nullptr); }},
                         {"streams", [](Pipeline& p) { p.deal_out(); }},
                         {"stream memory", [](Pipeline& p) { p.plan(&p.streams.clocks); }}};

/// The pipeline of one shape and size, run up to before `stage`; benchmarks come in the order of stages.
Pipeline& before(const NamedShape& shape, std::int64_t nodes, std::size_t stage) {
  static Pipeline pipeline;
  static std::size_t done = 0;
  if (pipeline.shape != &shape.build || pipeline.nodes != nodes || done > stage) {
    pipeline = Pipeline();
    pipeline.shape = &shape.build;
    pipeline.nodes = nodes;
    done = 0;
  }
  for (; done < stage; ++done) kStages[done].run(pipeline);
  return pipeline;
}

void grow(benchmark::State& state, const NamedShape& shape, std::size_t stage) {
  Pipeline& pipeline = before(shape, state.range(0), stage);
  for (auto _ : state) kStages[stage].run(pipeline);
  state.counters["nodes"] = static_cast<double>(pipeline.traced.graph.nodes().size());
  if (stage >= 3)
    state.counters["steps"] = static_cast<double>(pipeline.program.record.steps.size());
}

/// Prints as the console does, and the fits at the end.
class FitReporter : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.counters.find("nodes") == run.counters.end())
        continue;
      const std::string& title = run.run_name.function_name;
      Points& points = points_[title.substr(0, title.rfind('/'))];
      double& seconds = points[run.counters.at("nodes")];
      const double time = run.cpu_accumulated_time / static_cast<double>(run.iterations);
      seconds = seconds == 0 ? time : std::min(seconds, time);
    }
  }
  void Finalize() override {
    std::printf("\n%-22s %14s %8s %9s %9s\n", "shape/stage", "a, ns/(n lg n)", "off by", "exponent",
                "n lg n's");
    for (const auto& [name, points] : points_) print_fit(name, points);
  }

 private:
  using Points = std::map<double, double>;  ///< seconds by nodes

  static double n_log_n(double nodes) { return nodes * std::log2(nodes); }

  /// The slope of the line through the logarithms.
  template <typename Y>
  static double exponent(const Points& points, Y&& value) {
    double x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& [nodes, seconds] : points) {
      const double log_n = std::log(nodes);
      const double log_t = std::log(value(nodes, seconds));
      x += log_n, y += log_t, xx += log_n * log_n, xy += log_n * log_t;
    }
    const auto count = static_cast<double>(points.size());
    return (count * xy - x * y) / (count * xx - x * x);
  }

  static void print_fit(const std::string& name, Points points) {
    while (points.size() > 3) points.erase(points.begin());
    // Relative errors count alike at all sizes: a minimises the sum of (a f(n)/t - 1)^2.
    double square = 0;
    double sum = 0;
    for (const auto& [nodes, seconds] : points) {
      const double ratio = n_log_n(nodes) / seconds;
      square += ratio * ratio;
      sum += ratio;
    }
    const double a = sum / square;
    double off = 0;
    for (const auto& [nodes, seconds] : points)
      off += std::pow(a * n_log_n(nodes) / seconds - 1, 2);
    off = std::sqrt(off / static_cast<double>(points.size()));
    std::printf("%-22s %14.1f %7.0f%%", name.c_str(), a * 1e9, off * 100);
    if (points.size() > 1)
      std::printf(" %9.2f %9.2f", exponent(points, [](double, double t) { return t; }),
                  exponent(points, [](double n, double) { return n_log_n(n); }));
    std::printf("\n");
  }

  std::map<std::string, Points> points_;
};

void register_all() {
  const char* most = std::getenv("HEDDLE_BENCH_NODES");
  const std::int64_t largest = most == nullptr ? 100000 : std::atoll(most);
  for (const NamedShape& shape : kShapes)
    for (const std::int64_t nodes : {1000, 3000, 10000, 30000, 100000})
      for (std::size_t stage = 0; nodes <= largest && stage < std::size(kStages); ++stage) {
        const std::string title =
            std::string(shape.name) + "/" + kStages[stage].name + "/" + std::to_string(nodes);
        benchmark::RegisterBenchmark(
            title.c_str(), [&shape, stage](benchmark::State& state) { grow(state, shape, stage); })
            ->Arg(nodes)
            ->Iterations(1)
            // The first run of a stage pays for what the one before it left: memory to be given back, cold caches.
            ->Repetitions(nodes <= 10000 || !kStages[stage].is_long ? 3 : 1)
            ->Unit(benchmark::kMillisecond);
      }
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  heddle::bench::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  heddle::bench::FitReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}
