#include "tests/property/check.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <queue>
#include <random>

#include "engine/context.h"
#include "engine/trace.h"
#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "ir/passes/resolve_sizes.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "tests/property/program_ops.h"

namespace heddle::property {

namespace {

using ir::Literal;
using ir::Node;
using ir::Value;

/// A property does not hold.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void expect(bool holds, const std::string& what) {
  if (!holds) throw Broken(what);
}

ir::Graph trace(Program& program, std::span<const Tensor> inputs) {
  const engine::Guards guards = engine::guards_for(inputs, {});
  const auto env = std::make_shared<ir::ShapeEnv>();
  for (std::size_t k = 0; k < inputs.size(); ++k)
    for (std::size_t d = 0; d < guards.inputs[k].sizes.size(); ++d)
      if (guards.inputs[k].sizes[d].is_symbol())
        env->hints[guards.inputs[k].sizes[d].symbol()] = inputs[k].sizes()[d];
  const auto tracing = std::make_shared<engine::Trace>("main", env);
  const engine::TraceScope scope(tracing);
  std::vector<Tensor> handles;
  for (const engine::InputGuard& guard : guards.inputs)
    handles.push_back(tracing->handle(
        tracing->builder().input(ir::TensorMeta::of(guard.dtype, guard.sizes), {}, {})));
  for (const Tensor& result : program(handles[0], handles[1]))
    tracing->builder().output(tracing->value_of(result, {}));
  tracing->write_back_inputs();
  return tracing->builder().finish();
}

/// Whole numbers from -8 to 8.
Literal argument(std::int64_t rows, std::uint32_t seed) {
  Literal literal(f32, {rows, 4});
  std::mt19937 random(seed);
  for (std::int64_t k = 0; k < literal.count(); ++k)
    static_cast<float*>(literal.data())[k] = static_cast<float>(random() % 17) - 8;
  return literal;
}

// Partition.

using Quotient =
    std::vector<std::vector<std::uint32_t>>;  ///< by node: nodes that read it or wait for it

Quotient followers_of(const ir::Graph& graph, std::map<const Node*, std::uint32_t>& position) {
  Quotient followers(graph.nodes().size());
  for (const ir::NodePtr& node : graph.nodes()) {
    const auto k = static_cast<std::uint32_t>(position.size());
    position.emplace(node.get(), k);
    for (const Value& input : node->inputs())
      if (input) followers[position.at(input.node)].push_back(k);
    for (const Value& first : node->after()) followers[position.at(first.node)].push_back(k);
  }
  return followers;
}

/// Whether the graph of units has a cycle; unit_of names the unit of each node.
bool has_cycle(const Quotient& followers, std::span<const std::uint32_t> unit_of) {
  std::map<std::uint32_t, std::set<std::uint32_t>> next;
  std::map<std::uint32_t, std::size_t> waits;
  for (std::uint32_t k = 0; k < followers.size(); ++k) {
    waits.try_emplace(unit_of[k], 0);
    for (const std::uint32_t to : followers[k])
      if (unit_of[to] != unit_of[k] && next[unit_of[k]].insert(unit_of[to]).second)
        ++waits[unit_of[to]];
  }
  std::queue<std::uint32_t> ready;
  for (const auto& [unit, count] : waits)
    if (count == 0) ready.push(unit);
  std::size_t done = 0;
  for (; !ready.empty(); ready.pop(), ++done)
    for (const std::uint32_t to : next[ready.front()])
      if (--waits[to] == 0) ready.push(to);
  return done < waits.size();
}

void check_partition(const ir::Graph& graph) {
  std::vector<std::optional<ir::RegionMark>> marks;
  for (const ir::NodePtr& node : graph.nodes())
    marks.push_back(ir::may_be_marked(*node)
                        ? ir::region_mark(node->annotations(), node->location())
                        : std::nullopt);
  std::map<const Node*, std::uint32_t> position;
  const Quotient followers = followers_of(graph, position);
  std::vector<std::uint32_t> unit_of(followers.size());
  for (std::uint32_t k = 0; k < unit_of.size(); ++k) unit_of[k] = k;
  std::vector<bool> placed(unit_of.size(), false);
  const std::vector<ir::Region> regions = ir::partition_regions(graph, marks);
  for (const ir::Region& region : regions)
    for (const Node* node : region.nodes) {
      const std::uint32_t k = position.at(node);
      expect(!placed[k], "partition: %" + node->name() + " is in two regions");
      expect(marks[k] == region.mark,
             "partition: %" + node->name() + " is in a region of another mark");
      placed[k] = true;
      unit_of[k] = position.at(region.nodes.front());
    }
  for (std::uint32_t k = 0; k < unit_of.size(); ++k)
    expect(placed[k] == marks[k].has_value(), fmt::format("partition: node {} is misplaced", k));
  expect(!has_cycle(followers, unit_of), "partition: the regions form a cycle");
  for (std::size_t a = 0; a < regions.size(); ++a)
    for (std::size_t b = a + 1; b < regions.size(); ++b) {
      if (!(regions[a].mark == regions[b].mark)) continue;
      std::vector<std::uint32_t> merged = unit_of;
      std::ranges::replace(merged, position.at(regions[b].nodes.front()),
                           position.at(regions[a].nodes.front()));
      expect(has_cycle(followers, merged),
             fmt::format("partition: regions {} and {} could be one", a, b));
    }
}

// Kernels.

void check_kernels(const engine::Executable& executable, const Program& program) {
  std::map<std::string, std::string, std::less<>> region_of;
  // A kernel may read through a view of another region.
  for (const ir::NodePtr& node : executable.optimised().nodes())
    if (!node->outputs().empty() && ir::alias_of(*node, 0).kind == ir::Alias::Kind::Fresh)
      region_of[node->name()] = jit::region_of(*node);
  for (const ir::PlanKernel& kernel : executable.schedule().record.kernels)
    for (const std::string& node : kernel.nodes)
      if (const auto found = region_of.find(node); found != region_of.end())
        expect(found->second == kernel.region,
               fmt::format("kernels: {} of region '{}' computes %{} of region '{}'", kernel.name,
                           kernel.region, node, found->second));
  for (const std::string& id : program.twins()) {
    const bool there = std::ranges::any_of(executable.regions(), [&](const RegionInfo& region) {
      return region.id == id && !region.nodes.empty();
    });
    expect(there, "kernels: region " + id + " has lost its node");
  }
}

// Order.

bool is_note(const Node& node) { return node.op_name() == "prop::note"; }

/// Notes that `value` is computed from.
void add_notes_behind(const Node* node, std::set<const Node*>& seen, std::set<std::int64_t>& ids) {
  if (!seen.insert(node).second) return;
  if (is_note(*node)) {
    ids.insert(node->integer("id"));
    return;
  }
  for (const Value& input : node->inputs())
    if (input) add_notes_behind(input.node, seen, ids);
}

/// What outputs and write-backs are computed from. Order that leads from anything else is gone with it.
std::set<const Node*> live_nodes(const ir::Graph& graph) {
  std::set<const Node*> live;
  for (const Value& output : graph.outputs()) live.insert(output.node);
  for (const ir::Graph::WriteBack& write : graph.write_backs()) live.insert(write.source.node);
  for (std::size_t k = graph.nodes().size(); k-- > 0;) {
    const Node& node = *graph.nodes()[k];
    if (!live.contains(&node)) continue;
    for (const Value& input : node.inputs())
      if (input) live.insert(input.node);
  }
  return live;
}

void check_order(const ir::Graph& graph, const std::vector<std::int64_t>& log) {
  std::map<std::int64_t, std::size_t> place;
  for (std::size_t k = 0; k < log.size(); ++k)
    expect(place.emplace(log[k], k).second, fmt::format("order: note {} ran twice", log[k]));
  const std::set<const Node*> live = live_nodes(graph);
  for (const ir::NodePtr& node : graph.nodes()) {
    if (!is_note(*node) || !place.contains(node->integer("id"))) continue;
    std::set<std::int64_t> before;
    std::set<const Node*> seen;
    for (const Value& input : node->inputs()) add_notes_behind(input.node, seen, before);
    for (const Value& first : node->after())
      if (live.contains(first.node)) add_notes_behind(first.node, seen, before);
    for (const std::int64_t id : before)
      if (place.contains(id))
        expect(place.at(id) < place.at(node->integer("id")),
               fmt::format("order: note {} must run after note {}, and the kernels ran as {}",
                           node->integer("id"), id, fmt::join(log, " ")));
  }
}

/// What the ops with effects logged, in the program and by a plan.
void check_effects(const std::vector<std::int64_t>& got, const std::vector<std::int64_t>& want) {
  expect(got == want,
         fmt::format("effects: ran as {}, not as {}", fmt::join(got, " "), fmt::join(want, " ")));
}

// Execution.

thread_local const Fault* planted = nullptr;

jit::Program lower_with_fault(const ir::Graph& graph, const jit::LowerOptions& options) {
  const bool changed = planted != nullptr && planted->optimised != nullptr;
  jit::Program program = jit::lower(changed ? planted->optimised(graph) : graph, options);
  if (planted != nullptr && planted->program != nullptr) planted->program(program);
  return program;
}

class Run {
 public:
  Run(Program& program, const Fault& fault, bool prove)
      : program_(program),
        prove_(prove),
        rows_(1 + program.seed() % 5),
        arguments_{argument(rows_, 1), argument(rows_, 2)} {
    for (Literal& literal : arguments_)
      tensors_.push_back(Tensor::wrap(literal.data(), f32, {rows_, 4}));
    graph_ = trace(program_, tensors_);
    ir::verify(graph_, ir::Stage::Functional);
    planted = &fault;
    given_ = fault.graph == nullptr ? graph_ : fault.graph(graph_);
  }

  void check() {
    check_partition(ir::resolve_sizes(graph_));
    static constexpr StepOrder kOrders[] = {StepOrder::Smallest, StepOrder::Dfs, StepOrder::Bfs,
                                            StepOrder::Lpmf, StepOrder::Given};
    const StepOrder order = kOrders[program_.seed() % std::size(kOrders)];
    const auto executable = build(order);
    // A fault may keep from the run what tells sizes.
    const bool all_known = executable->unit().phases().count() == 1;
    if (planted->name[0] != '\0' && !all_known) return;
    check_kernels(*executable, program_);
    const std::unique_ptr<engine::BoundPlan> plan = executable->bind(sizes(), executor_.threads());
    check_plan(*executable, *plan);
    execute(*plan);
    if (knows_all_sizes(executable->unit())) check_peak(order, executable);
    if (planted->name[0] == '\0' && program_.seed() % 4 == 0) check_step_by_step();
  }

  std::string text() const { return ir::print(graph_); }

 private:
  base::SymbolValues sizes() const { return ir::bind_sizes(graph_, arguments_); }

  std::shared_ptr<engine::Executable> build(StepOrder order) const {
    engine::BuildOptions options;
    options.engine.threads = static_cast<int>(1 + program_.seed() / 8 % 2);
    options.engine.order = order;
    options.engine.check_plans = prove_;
    options.engine.scope = program_.seed() % 3 == 0 ? CompileScope::Annotated : CompileScope::Whole;
    options.compiler = &jit::CompileService::shared();
    options.hints = sizes();
    options.lower = lower_with_fault;
    return std::make_shared<engine::Executable>(given_, engine::Guards{}, options);
  }

  /// @param plan  the last phase
  static void check_memory(const engine::BoundSteps& plan) {
    const scheduler::Schedule& schedule = plan.unit->schedule();
    memory::check(schedule.record, scheduler::stage_numbers(schedule), plan.sizes, plan.memory);
  }

  static void check_plan(const engine::Executable& executable, const engine::BoundPlan& plan) {
    scheduler::check(executable.schedule());
    if (executable.unit().phases().count() == 1) check_memory(plan);
  }

  /// Memory for outputs whose sizes the run tells.
  class LateOutputs : public engine::OutputSource {
   public:
    LateOutputs(const ir::Graph& graph, std::vector<Literal>& outputs)
        : graph_(graph), outputs_(outputs) {}
    void* output(std::uint32_t position, const Sizes& sizes) override {
      outputs_[position] = Literal(graph_.outputs()[position].meta().dtype, sizes);
      return outputs_[position].data();
    }

   private:
    const ir::Graph& graph_;
    std::vector<Literal>& outputs_;
  };

  /// Runs phase after phase; what a phase's memory holds before is not a number.
  void run_phases(engine::ExecutionContext& context) {
    const std::int32_t status =
        engine::run_phases(context.frame(), executor_, [&](engine::Frame& frame) {
          const engine::BoundSteps& bound = frame.plan();
          if (bound.phase > 0 && bound.arena_bytes() > 0)
            std::memset(frame.memory().arenas.back(), 0xff,
                        static_cast<std::size_t>(bound.arena_bytes()));
          if (!frame.has_next() && bound.phase > 0) check_memory(bound);
          return executor_.run(frame.steps(), frame.stages());
        });
    expect(status == 0, "values: a step failed");
  }

  /// Before it runs, in nested programs too. Where the run tells some, orders are compared without them.
  static bool knows_all_sizes(const engine::Unit& unit) {
    if (unit.phases().count() > 1) return false;
    for (std::uint32_t kernel = 0; kernel < unit.program().kernels.size(); ++kernel)
      for (const auto& nested : unit.nested(kernel))
        if (!knows_all_sizes(*nested)) return false;
    return true;
  }

  void check_peak(StepOrder order, const std::shared_ptr<engine::Executable>& built) const {
    const auto of = [&](StepOrder wanted) { return wanted == order ? built : build(wanted); };
    const auto smallest = of(StepOrder::Smallest);
    const scheduler::Schedule& schedule = smallest->schedule();
    std::map<scheduler::Method, std::int64_t> peaks(schedule.peaks.begin(), schedule.peaks.end());
    expect(peaks.at(schedule.method) <= peaks.at(scheduler::Method::Given),
           "peak: the chosen order needs more than the given one");
    const auto arena = [&](const engine::Executable& executable) {
      return executable.bind(sizes(), executor_.threads())->memory.peak_bytes;
    };
    const std::int64_t chosen = arena(*smallest);
    const std::int64_t given = arena(*of(StepOrder::Given));
    expect(chosen <= given,
           fmt::format("peak: an arena of {} bytes, of {} in the given order", chosen, given));
  }

  static std::vector<Literal> copies(const std::vector<Literal>& literals) {
    std::vector<Literal> result;
    for (const Literal& literal : literals) result.push_back(literal.clone());
    return result;
  }

  /// The outputs that the definition gives. Fills effects_.
  std::vector<Literal> evaluated() {
    take_effects();
    std::vector<Literal> outputs = ir::evaluate(graph_, copies(arguments_));
    effects_ = take_effects();
    take_notes();
    return outputs;
  }

  void execute(const engine::BoundPlan& plan) {
    const std::vector<Literal> want = evaluated();
    std::vector<Literal> arguments = copies(arguments_);
    std::vector<Tensor> inputs, outputs;
    for (Literal& literal : arguments)
      inputs.push_back(Tensor::wrap(literal.data(), f32, {rows_, 4}));
    std::vector<Literal> got;
    for (std::size_t k = 0; k < plan.output_sizes.size(); ++k) {
      const Sizes& sizes = plan.output_sizes[k];
      const bool late = std::ranges::find(sizes, engine::kUnknownSize) != sizes.end();
      got.emplace_back(graph_.outputs()[k].meta().dtype, late ? Sizes{0} : sizes);
      outputs.push_back(late ? Tensor()
                             : Tensor::wrap(got[k].data(), got[k].dtype(), got[k].sizes()));
    }
    engine::ExecutionContext context;
    context.use(plan);
    // What a kernel reads and nobody wrote is a NaN.
    const auto arena_bytes = static_cast<std::size_t>(context.arena_bytes());
    if (arena_bytes != 0) std::memset(context.arena(), 0xff, arena_bytes);
    LateOutputs late(graph_, got);
    context.set_io(plan, inputs, outputs, &late);
    run_phases(context);
    for (const ir::Graph::WriteBack& write : graph_.write_backs())
      got.push_back(std::move(arguments[write.target == graph_.inputs()[0] ? 0 : 1]));
    compare(got, want, "values");
    check_effects(take_effects(), effects_);
    check_order(graph_, take_notes());
  }

  static void compare(const std::vector<Literal>& got, const std::vector<Literal>& want,
                      const std::string& property) {
    expect(got.size() == want.size(), property + ": number of outputs");
    for (std::size_t k = 0; k < want.size(); ++k) {
      expect(got[k].sizes() == want[k].sizes(), fmt::format("{}: sizes of output {}", property, k));
      for (std::int64_t e = 0; e < want[k].count(); ++e)
        expect(got[k].at(e) == want[k].at(e),
               fmt::format("{}: element {} of output {} is {}, not {}", property, e, k,
                           got[k].at(e), want[k].at(e)));
    }
  }

  /// Through the public engine, freed bytes overwritten.
  void check_step_by_step() {
    const std::vector<Literal> want = evaluated();
    Engine engine([&](const Tensor& x, const Tensor& y) { return program_(x, y); },
                  {.threads = 1, .disk_cache = false});
    std::vector<Literal> arguments = copies(arguments_);
    std::vector<Tensor> inputs;
    for (Literal& literal : arguments)
      inputs.push_back(Tensor::wrap(literal.data(), f32, {rows_, 4}));
    std::vector<Tensor> outputs;
    std::int64_t live = 0;
    std::int64_t most = 0;
    for (const RunEvent& event : engine.run_trace(inputs, &outputs)) {
      if (event.kind == RunEvent::Kind::Alloc) live += event.bytes;
      if (event.kind == RunEvent::Kind::Free) live -= event.bytes;
      most = std::max(most, live);
    }
    expect(live == 0, "memory: what was taken was not given back");
    std::vector<Literal> got;
    for (const Tensor& output : outputs)
      got.push_back(Literal(output.dtype(), {output.sizes().begin(), output.sizes().end()},
                            {output.strides().begin(), output.strides().end()},
                            const_cast<void*>(output.data()), nullptr)
                        .clone());
    for (const ir::Graph::WriteBack& write : graph_.write_backs())
      got.push_back(std::move(arguments[write.target == graph_.inputs()[0] ? 0 : 1]));
    compare(got, want, "memory");
    check_effects(take_effects(), effects_);
    check_order(graph_, take_notes());
  }

  Program& program_;
  bool prove_;
  std::int64_t rows_;
  std::vector<Literal> arguments_;
  std::vector<Tensor> tensors_;
  ir::Graph graph_;
  ir::Graph given_;                    ///< with the fault
  std::vector<std::int64_t> effects_;  ///< of the program
  scheduler::Executor executor_{static_cast<int>(1 + program_.seed() / 8 % 2)};
};

}  // namespace

std::optional<std::string> check_program(Program& program, const Fault& fault, bool prove) {
  std::string text;
  try {
    Run run(program, fault, prove);
    text = run.text();
    run.check();
  } catch (const std::exception& error) {
    return fmt::format("{}\n// seed {}\n{}", error.what(), program.seed(), text);
  }
  return std::nullopt;
}

}  // namespace heddle::property
