#include "engine/unit.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "base/check.h"
#include "engine/batch_choice.h"
#include "engine/capture_traits.h"
#include "engine/cuda_unit.h"
#include "engine/fold.h"
#include "engine/plan_check.h"

namespace heddle::engine {

using base::SymbolValues;
using ir::BufferId;
using ir::PlanBuffer;

namespace {

/// Bytes of an output that aliases an intermediate belong to the output.
void let_outputs_own_their_bytes(ir::ScheduleRecord& record) {
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    if (record.buffers[b].role != PlanBuffer::Role::Output) continue;
    const BufferId root = ir::alias_root(record, b);
    if (root == b || record.buffers[root].role != PlanBuffer::Role::Intermediate) continue;
    record.buffers[b].alias_of = ir::kNone;
    record.buffers[root].alias_of = b;
  }
}

scheduler::Method method_of(StepOrder order) {
  switch (order) {
    case StepOrder::Lpmf:
      return scheduler::Method::Lpmf;
    case StepOrder::Bfs:
      return scheduler::Method::Bfs;
    case StepOrder::Dfs:
      return scheduler::Method::Dfs;
    default:
      return scheduler::Method::Given;
  }
}

/// `sizes` with 1 for each symbol of the record that it does not tell.
SymbolValues complete(SymbolValues sizes, const ir::ScheduleRecord& record) {
  std::vector<base::Symbol> symbols;
  for (const PlanBuffer& buffer : record.buffers) buffer.bytes.collect_symbols(symbols);
  for (const base::Symbol& symbol : symbols) sizes.try_emplace(symbol, 1);
  return sizes;
}

/// The buffer of argument `position`.
BufferId argument_buffer(const jit::Program& program, std::uint32_t position) {
  const auto& buffers = program.record.buffers;
  for (BufferId b = 0; b < buffers.size(); ++b)
    if (buffers[b].role == PlanBuffer::Role::Input && buffers[b].position == position) return b;
  HD_CHECK(false, "a nested program lacks an argument");
  return 0;
}

/// Makes an argument of a nested program a constant.
void fix_argument(jit::Program& program, std::uint32_t position, const ir::Literal& value) {
  PlanBuffer& buffer = program.record.buffers[argument_buffer(program, position)];
  buffer.role = PlanBuffer::Role::Constant;
  buffer.position = static_cast<std::uint32_t>(program.constants.size());
  program.constants.push_back(std::make_shared<const ir::Literal>(value));
}

}  // namespace

Unit::Unit(jit::Program program, std::vector<ir::Literal> fixed, const BuildOptions& options,
           std::size_t folded)
    : program_(std::move(program)), fixed_(std::move(fixed)) {
  check_plans_ = wants_check(options.engine);
  cache_bytes_ = options.cache_bytes;
  compiler_ = options.compiler;
  constants_ = options.constants;
  if (options.autotune) verdicts_ = &options.compiler->library_verdicts();
  let_outputs_own_their_bytes(program_.record);
  // The CPU's compiler makes code of any nest in less time than NVRTC, where it is there.
  const std::unique_ptr<FoldingKernels> folding =
      options.cuda == nullptr || options.compiler->can_compile()
          ? fold_on_cpu(*options.compiler)
          : fold_on_cuda(options.cuda, options.compiler->disk_cache());
  FixedSteps fixed_steps(program_, fixed_, *folding, options.constants);
  const PendingKernels pending =
      options.cuda == nullptr ? submit(fixed_steps.folded(), options) : PendingKernels();
  folded_steps_ = folded + fixed_steps.run();
  folded_results_ = fixed_steps.take_results();
  for (const ir::Literal& literal : fixed_)
    fixed_bytes_ += static_cast<std::int64_t>(literal.bytes());
  if (options.cuda != nullptr) {
    cuda_ = std::make_unique<CudaUnit>(options.cuda, program_, options.compiler->disk_cache(),
                                       options.autotune);
    fixed_.resize(program_.record.buffers.size());  // workspaces came
  } else {
    wait_for(pending);
  }
  NestedUnits own;
  BuildOptions inside = options;
  if (inside.nested == nullptr) inside.nested = &own;
  add_nested(inside);
  make_schedule(options);
  if (cuda_ != nullptr) plan_streams(options);
  find_shared_places();
  find_batches();
  make_recipes();
}

Unit::~Unit() = default;

/// This unit and those nested in it, each once.
std::vector<const Unit*> Unit::with_nested() const {
  std::vector<const Unit*> units{this};
  std::set<const Unit*> seen;
  for (std::size_t k = 0; k < units.size(); ++k)
    for (const auto& nested : units[k]->nested_)
      for (const auto& unit : nested)
        if (seen.insert(unit.get()).second) units.push_back(unit.get());
  return units;
}

bool Unit::shares_tiles() const {
  return std::ranges::any_of(with_nested(), [](const Unit* unit) {
    return unit->cuda_ != nullptr && unit->cuda_->shares_tiles();
  });
}

std::unique_ptr<memory::Planner> Unit::plan_memory(memory::Planner::Options options) const {
  options.arena_of.assign(phases_.arena_of().begin(), phases_.arena_of().end());
  return std::make_unique<memory::Planner>(schedule_.record, scheduler::stage_numbers(schedule_),
                                           std::move(options));
}

std::int64_t Unit::peak_bytes(const SymbolValues& sizes) const {
  std::int64_t sum = 0;
  for (std::uint32_t phase = 0; phase < phases_.count(); ++phase)
    sum += planner_->bind(sizes, phase).peak_bytes;
  return sum;
}

/// What blocks of step `k` that share tiles take, where the sizes tell.
void Unit::plan_for_shares(std::uint32_t k, SymbolValues& sizes) const {
  std::vector<base::Symbol> symbols;
  for (const ir::SymExpr& size : program_.launches[k].sizes) size.collect_symbols(symbols);
  if (!std::ranges::all_of(symbols, [&](const auto& symbol) { return sizes.contains(symbol); }))
    return;
  std::vector<std::int64_t> numbers;
  for (const ir::SymExpr& size : program_.launches[k].sizes)
    numbers.push_back(size.evaluate(sizes));
  std::int64_t bytes = 0;
  cuda_->bind(program_.record.steps[k].kernel, numbers, bytes);
  sizes[shares_workspace(k)] = bytes;
}

/// The hints and, where they tell all sizes, what nested plans and shared tiles take at these.
SymbolValues Unit::sizes_to_plan_for(SymbolValues hints) const {
  std::set<base::Symbol> workspaces;
  for (const jit::ProgramKernel& kernel : program_.kernels)
    if (kernel.nested != nullptr) workspaces.insert(kernel.nested->workspace);
  for (std::uint32_t k = 0; cuda_ != nullptr && k < program_.launches.size(); ++k)
    workspaces.insert(shares_workspace(k));
  std::vector<base::Symbol> symbols;
  for (const PlanBuffer& buffer : program_.record.buffers) buffer.bytes.collect_symbols(symbols);
  const bool all_known = std::ranges::all_of(symbols, [&](const base::Symbol& symbol) {
    return hints.contains(symbol) || workspaces.contains(symbol);
  });
  NestedPlans known;
  for (std::uint32_t k = 0; all_known && k < program_.kernels.size(); ++k)
    if (const jit::NestedCall* call = program_.kernels[k].nested.get(); call != nullptr)
      hints[call->workspace] = bind_region(*call, k, hints, 1, known)->workspace_bytes;
  for (std::uint32_t k = 0; all_known && cuda_ != nullptr && k < program_.launches.size(); ++k)
    if (cuda_->shares_tiles(program_.record.steps[k].kernel)) plan_for_shares(k, hints);
  return hints;
}

/// An order that promises a smaller peak is taken only if the memory planner finds it smaller too, or as large where it
/// gives back donated arguments, which are in no arena, earlier.
void Unit::make_schedule(const BuildOptions& options) {
  scheduler::ScheduleOptions order;
  order.parallel_steps = options.engine.threads != 1 && cuda_ == nullptr;
  order.reorder = options.engine.order == StepOrder::Smallest;
  order.method = method_of(options.engine.order);
  order.hints = sizes_to_plan_for(options.hints);
  order.fences = steps_that_make_sizes(program_);
  const auto take = [&] {
    schedule_ = scheduler::schedule(program_.record, order);
    phases_ = Phases(program_, schedule_);
    planner_ = plan_memory({});
  };
  take();
  if (!order.reorder || schedule_.method == scheduler::Method::Given) return;
  const SymbolValues sizes = complete(order.hints, program_.record);
  const std::int64_t promised = peak_bytes(sizes);
  scheduler::Schedule chosen = std::move(schedule_);
  order.reorder = false;
  take();
  schedule_.peaks = chosen.peaks;
  const std::int64_t given = peak_bytes(sizes);
  const bool donated = std::ranges::any_of(program_.record.buffers, &PlanBuffer::donated);
  if (given < promised || (given == promised && !donated)) return;
  schedule_ = std::move(chosen);
  phases_ = Phases(program_, schedule_);
  planner_ = plan_memory({});
}

/// Tells the embedder who listens why steps go into no graph: each reason once.
void Unit::log_split_steps(const scheduler::CapturePlan& plan, const BuildOptions& options) const {
  if (!options.engine.log || !options.graphs) return;
  std::map<std::string, std::vector<ir::StepId>> by_reason;
  for (const ir::StepId step : plan.order) by_reason[plan.reasons[step]].push_back(step);
  by_reason.erase(std::string());
  for (const auto& [reason, steps] : by_reason) {
    const ir::PlanKernel& first = schedule_.record.kernels[schedule_.record.steps[steps[0]].kernel];
    options.engine.log(fmt::format("heddle: in no graph of the device: {} step{}, the first {}: {}",
                                   steps.size(), steps.size() == 1 ? "" : "s", first.name, reason));
  }
}

/// Brings the steps into the order of the partitions that are captured and not.
scheduler::CapturePlan Unit::order_for_graphs(const BuildOptions& options) {
  const std::vector<scheduler::StepTraits> given = capture_traits(program_, {});
  std::vector<scheduler::StepTraits> traits;
  for (std::size_t k = 0; k < given.size(); ++k) {
    traits.push_back(given[schedule_.given[k]]);
    const jit::ProgramKernel& kernel = program_.kernels[schedule_.record.steps[k].kernel];
    traits.back().own_work = kernel.nested != nullptr;
  }
  scheduler::CaptureOptions capture = options.capture;
  capture.enabled = options.graphs;
  capture.sizes = complete(options.hints, program_.record);
  scheduler::CapturePlan plan = scheduler::plan_capture(schedule_.record, traits, capture);
  log_split_steps(plan, options);
  if (!std::ranges::is_sorted(plan.order)) {
    schedule_ = scheduler::in_order(std::move(schedule_), plan.order);
    phases_ = Phases(program_, schedule_);
  }
  return plan;
}

/// Streams need not keep the order of stages: what they do keep says who may share memory.
void Unit::plan_streams(const BuildOptions& options) {
  const scheduler::CapturePlan capture = order_for_graphs(options);
  cuda_->assign_streams(program_.graph, schedule_.record, options.streams);
  cuda_->plan_graphs(capture);
  memory::Planner::Options memory;
  memory.clocks = &cuda_->streams().clocks;
  planner_ = plan_memory(std::move(memory));
  move_to_device();
}

/// What was folded or packed has no other owner on the host.
void Unit::move_to_device() {
  cuda_->upload(program_, fixed_, planner_->roots());
  fixed_ = {};
  program_.constants = {};
}

/// Has the kernels compiled of the steps that are there in each run.
Unit::PendingKernels Unit::submit(const std::vector<bool>& folded,
                                  const BuildOptions& options) const {
  PendingKernels pending(program_.kernels.size());
  for (std::size_t k = 0; k < folded.size(); ++k) {
    const std::uint32_t kernel = program_.record.steps[k].kernel;
    const auto& nest = program_.kernels[kernel].nest;
    if (!folded[k] && nest != nullptr && !pending[kernel].valid())
      pending[kernel] = options.compiler->submit(nest);
  }
  return pending;
}

void Unit::wait_for(const PendingKernels& pending) {
  kernels_.resize(pending.size());
  for (std::size_t k = 0; k < pending.size(); ++k) {
    if (!pending[k].valid()) continue;
    try {
      kernels_[k] = pending[k].get();
    } catch (const std::exception& error) {
      throw KernelFailure(program_.record.kernels[k].region, error.what());
    }
  }
}

void Unit::add_nested(const BuildOptions& options) {
  nested_.resize(program_.kernels.size());
  const std::vector<BufferId> roots = ir::alias_roots(program_.record);
  for (std::uint32_t step = 0; step < program_.record.steps.size(); ++step)
    if (program_.kernels[program_.record.steps[step].kernel].nested)
      add_nested(step, roots, options);
}

/// Operands that are the same in each run and fixed here are constants there: what reads only them is
/// folded, and weights are packed once.
void Unit::add_nested(std::uint32_t step, std::span<const BufferId> roots,
                      const BuildOptions& options) {
  const std::uint32_t kernel = program_.record.steps[step].kernel;
  const jit::NestedCall& call = *program_.kernels[kernel].nested;
  const jit::Launch& launch = program_.launches[step];
  for (const jit::NestedCall::Region& region : call.regions) {
    NestedKey key{region.program, {}};
    std::vector<ir::Literal> values;
    for (std::uint32_t k = call.first_captured(); k < call.operands; ++k) {
      const BufferId root = roots[launch.buffers[call.first_operand() + k]];
      const PlanBuffer::Role role = program_.record.buffers[root].role;
      if (role != PlanBuffer::Role::Parameter && role != PlanBuffer::Role::Constant) continue;
      key.fixed.emplace_back(k, fixed_[root].identity());
      values.push_back(fixed_[root]);
    }
    nested_[kernel].push_back(nested_unit(std::move(key), values, options));
  }
}

std::shared_ptr<const Unit> Unit::nested_unit(NestedKey key, const std::vector<ir::Literal>& values,
                                              const BuildOptions& options) {
  NestedUnit& known = (*options.nested)[key];
  if (known.unit != nullptr) return known.unit;
  known.fixed = values;
  jit::Program program = *key.program;
  for (std::size_t k = 0; k < values.size(); ++k)
    fix_argument(program, key.fixed[k].first, values[k]);
  std::vector<ir::Literal> fixed = fixed_buffers(program, ir::Graph());
  BuildOptions inside = options;
  inside.graphs = false;  // nested plans are queued step by step
  return known.unit = std::make_shared<const Unit>(std::move(program), std::move(fixed), inside);
}

std::size_t Unit::folded_steps() const {
  std::size_t folded = 0;
  for (const Unit* unit : with_nested()) folded += unit->folded_steps_;
  return folded;
}

void Unit::count_updates(EngineStats& stats) const {
  for (const Unit* unit : with_nested()) {
    stats.in_place += unit->program_.in_place;
    stats.missed_in_place += unit->program_.copied_arguments.size();
    for (const std::vector<ir::SymExpr>& argument : unit->program_.copied_arguments)
      for (const ir::SymExpr& bytes : argument)
        if (bytes.is_constant())
          stats.missed_in_place_bytes += static_cast<std::uint64_t>(bytes.constant());
  }
}

void Unit::collect_code(std::vector<const void*>& code) const {
  for (const Unit* unit : with_nested()) {
    for (const auto& kernel : unit->kernels_)
      if (kernel != nullptr) code.push_back(reinterpret_cast<const void*>(kernel->entry));
    for (std::uint32_t k = 0; unit->cuda_ != nullptr && k < unit->program_.kernels.size(); ++k)
      if (unit->cuda_->kernel(k) != nullptr) code.push_back(unit->cuda_->kernel(k));
  }
}

}  // namespace heddle::engine
