#include "engine/executable.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <set>

#include "base/check.h"
#include "engine/compile_scope.h"
#include "engine/custom_step.h"
#include "engine/fold.h"
#include "heddle/error.h"

namespace heddle::engine {

using base::SymbolValues;
using ir::BufferId;
using ir::PlanBuffer;

namespace {

std::atomic<std::uint64_t> next_plan_id{1};

jit::LowerOptions lower_options(const BuildOptions& options, const OptimisedGraph& graph) {
  jit::LowerOptions lower;
  lower.rest = graph.rest;
  lower.units = graph.units;
  lower.library_available = jit::library_serves;
  lower.vector_bytes = options.compiler->vector_bytes();
  return lower;
}

/// Bytes of an output that aliases an intermediate belong to the output.
void let_outputs_own_their_bytes(ir::ScheduleRecord& record) {
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    if (record.buffers[b].role != PlanBuffer::Role::Output) continue;
    BufferId root = b;
    while (record.buffers[root].alias_of != ir::kNone) root = record.buffers[root].alias_of;
    if (root == b || record.buffers[root].role != PlanBuffer::Role::Intermediate) continue;
    record.buffers[b].alias_of = ir::kNone;
    record.buffers[root].alias_of = b;
  }
}

/// Lets the region run op by op, if its mark allows that and this was not how it was tried.
bool fall_back(OptimisedGraph& graph, const std::string& region, bool tried_fused, const char* why,
               const EngineOptions& options) {
  if (std::ranges::find(graph.may_fall_back, region) == graph.may_fall_back.end()) return false;
  jit::UnitOptions& unit = graph.units.at(region);
  const auto info = std::ranges::find(graph.regions, region, &RegionInfo::name);
  if (info->fell_back) return tried_fused;
  log_fallback(options, *info, why);
  info->fell_back = true;
  unit.fuse = false;
  return true;
}

std::vector<std::uint32_t> stage_numbers(const scheduler::Schedule& schedule) {
  std::vector<std::uint32_t> numbers(schedule.record.steps.size());
  for (std::uint32_t stage = 0; stage < schedule.stages.size(); ++stage) {
    for (const ir::StepId step : schedule.stages[stage]) numbers[step] = stage;
  }
  return numbers;
}

std::unique_ptr<memory::Planner> plan_memory(const scheduler::Schedule& schedule) {
  return std::make_unique<memory::Planner>(schedule.record, stage_numbers(schedule),
                                           memory::Planner::Options{});
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

void run_kernel(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
                std::int32_t* status) {
  const auto* kernel = static_cast<const jit::CpuKernel*>(step.code);
  auto* scratch = static_cast<char*>(step.scratch) + worker * step.scratch_stride;
  kernel->entry(step.buffers, step.sizes, begin, end, scratch, status);
}

void run_library(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
                 std::int32_t*) {
  const auto* call = static_cast<const jit::BoundLibraryCall*>(step.code);
  call->run(step.buffers, begin, end,
            static_cast<char*>(step.scratch) + worker * step.scratch_stride);
}

std::vector<std::int64_t> concrete(const ir::Dims& dims, const SymbolValues& sizes) {
  std::vector<std::int64_t> numbers;
  for (const ir::SymExpr& dim : dims) numbers.push_back(dim.evaluate(sizes));
  return numbers;
}

}  // namespace

Executable::Executable(ir::Graph traced, Guards guards, const BuildOptions& options)
    : guards_(std::move(guards)), traced_(std::move(traced)) {
  OptimisedGraph graph = optimise(traced_, options.engine);
  optimised_ = graph.graph;
  while (!build(graph, options)) {
  }
  regions_ = std::move(graph.regions);
  passes_ = std::move(graph.passes);
}

/// @return false when a region could not be compiled and was set to run op by op.
bool Executable::build(OptimisedGraph& graph, const BuildOptions& options) {
  program_ = jit::lower(optimised_, lower_options(options, graph));
  let_outputs_own_their_bytes(program_.record);
  fixed_ = fixed_buffers(program_, optimised_);
  folded_steps_ = fold_fixed_steps(program_, fixed_, *options.compiler);

  make_schedule(options);
  kernels_.assign(program_.kernels.size(), nullptr);
  std::vector<std::shared_future<jit::CpuKernelPtr>> pending(program_.kernels.size());
  for (const ir::PlanStep& step : program_.record.steps) {
    const auto& nest = program_.kernels[step.kernel].nest;
    if (nest != nullptr) pending[step.kernel] = options.compiler->submit(nest);
  }
  std::set<std::string> one_by_one;
  for (const RegionInfo& region : graph.regions)
    if (region.fell_back) one_by_one.insert(region.name);
  bool complete = true;
  for (std::size_t k = 0; k < pending.size(); ++k) {
    if (!pending[k].valid()) continue;
    try {
      kernels_[k] = pending[k].get();
    } catch (const std::exception& error) {
      const std::string& region = program_.record.kernels[k].region;
      const bool fused = !one_by_one.contains(region);
      if (!fall_back(graph, region, fused, error.what(), options.engine)) throw;
      complete = false;
    }
  }
  return complete;
}

/// An order that promises a smaller peak is taken only if the memory planner finds it smaller too.
void Executable::make_schedule(const BuildOptions& options) {
  scheduler::ScheduleOptions order;
  order.parallel_steps = options.engine.threads != 1;
  order.reorder = options.engine.order == StepOrder::Smallest;
  order.method = method_of(options.engine.order);
  order.hints = options.hints;
  schedule_ = scheduler::schedule(program_.record, order);
  planner_ = plan_memory(schedule_);
  if (!order.reorder || schedule_.method == scheduler::Method::Given) return;
  order.reorder = false;
  scheduler::Schedule given = scheduler::schedule(program_.record, order);
  auto given_planner = plan_memory(given);
  const SymbolValues sizes = complete(options.hints, program_.record);
  if (given_planner->bind(sizes).peak_bytes > planner_->bind(sizes).peak_bytes) return;
  given.peaks = std::move(schedule_.peaks);
  schedule_ = std::move(given);
  planner_ = std::move(given_planner);
}

std::size_t Executable::distinct_kernels() const {
  std::set<const void*> distinct;
  for (const auto& kernel : kernels_) {
    if (kernel != nullptr) distinct.insert(reinterpret_cast<const void*>(kernel->entry));
  }
  return distinct.size();
}

AddressSource Executable::source_of(BufferId buffer, const memory::MemoryPlan& plan) const {
  const BufferId root = planner_->roots()[buffer];
  const PlanBuffer& owner = schedule_.record.buffers[root];
  switch (owner.role) {
    case PlanBuffer::Role::Input:
      return {AddressSource::Kind::Input, 0, owner.position, nullptr};
    case PlanBuffer::Role::Output:
      return {AddressSource::Kind::Output, 0, owner.position, nullptr};
    case PlanBuffer::Role::Parameter:
    case PlanBuffer::Role::Constant:
      return {AddressSource::Kind::Fixed, 0, 0, const_cast<void*>(fixed_[root].data())};
    case PlanBuffer::Role::Intermediate:
    case PlanBuffer::Role::Workspace:
      break;
  }
  return {AddressSource::Kind::Arena, plan.offsets[root], 0, nullptr};
}

std::vector<jit::LibraryOperand> Executable::library_operands(const jit::Launch& launch,
                                                              const SymbolValues& sizes) const {
  std::vector<jit::LibraryOperand> operands;
  for (const BufferId buffer : launch.buffers) {
    const ir::Literal& fixed = fixed_[planner_->roots()[buffer]];
    operands.push_back({concrete(schedule_.record.buffers[buffer].sizes, sizes), fixed.data()});
  }
  return operands;
}

scheduler::BoundStep Executable::bind_step(std::size_t step, const SymbolValues& sizes, int threads,
                                           BoundPlan& plan) const {
  const ir::PlanStep& planned = schedule_.record.steps[step];
  const jit::Launch& launch = program_.launches[schedule_.given[step]];
  const jit::ProgramKernel& kernel = program_.kernels[planned.kernel];
  scheduler::BoundStep bound{};
  std::vector<std::int64_t>& numbers = plan.step_sizes[step];
  for (const ir::SymExpr& size : launch.sizes) numbers.push_back(size.evaluate(sizes));
  if (kernel.nest != nullptr) {
    bound.run = run_kernel;
    bound.code = kernels_[planned.kernel].get();
    bound.extent = kernel.nest->parallel_extent.evaluate_sizes(numbers);
    bound.scratch_bytes = kernels_[planned.kernel]->scratch_bytes.evaluate_sizes(numbers);
  } else if (kernel.custom != nullptr) {
    plan.custom[step] = std::make_unique<jit::BoundCustomCall>(*kernel.custom, sizes, threads);
    bound.run = run_custom;
    bound.code = plan.custom[step].get();
    bound.extent = plan.custom[step]->extent();
    bound.scratch_bytes = plan.custom[step]->scratch_bytes();
  } else {
    plan.library[step] = jit::bind_library_call(*kernel.library, library_operands(launch, sizes));
    bound.run = run_library;
    bound.code = plan.library[step].get();
    bound.extent = plan.library[step]->extent();
    bound.scratch_bytes = plan.library[step]->scratch_bytes();
  }
  // The work of a kernel that has no iterations may divide by a size of 0.
  if (bound.extent > 0) bound.work = planned.work.evaluate(sizes);
  bound.sizes = numbers.data();
  plan.table_start.push_back(static_cast<std::uint32_t>(plan.table.size()));
  for (const BufferId buffer : launch.buffers) {
    const auto entry = static_cast<std::uint32_t>(plan.table.size());
    plan.table.push_back(source_of(buffer, plan.memory));
    const AddressSource& source = plan.table.back();
    if (source.kind == AddressSource::Kind::Input)
      plan.input_slots.emplace_back(entry, source.position);
    if (source.kind == AddressSource::Kind::Output)
      plan.output_slots.emplace_back(entry, source.position);
  }
  return bound;
}

std::unique_ptr<BoundPlan> Executable::bind(const SymbolValues& sizes, int threads) const {
  auto plan = std::make_unique<BoundPlan>();
  plan->executable = shared_from_this();
  plan->id = next_plan_id.fetch_add(1);
  plan->sizes = sizes;
  plan->memory = planner_->bind(sizes);
  const std::size_t count = schedule_.record.steps.size();
  plan->step_sizes.resize(count);
  plan->library.resize(count);
  plan->custom.resize(count);
  std::int64_t scratch = 0;
  for (std::size_t step = 0; step < count; ++step) {
    plan->steps.push_back(bind_step(step, sizes, threads, *plan));
    scratch = std::max(scratch, plan->steps.back().scratch_bytes);
  }
  const std::int64_t align = memory::kAlignment;
  plan->scratch_stride = (scratch + align - 1) / align * align;
  plan->arena_bytes = plan->memory.peak_bytes + plan->scratch_stride * threads;
  for (const scheduler::Stage& stage : schedule_.stages) {
    if (!stage.empty())
      plan->stages.push_back({stage.front(), static_cast<std::uint32_t>(stage.size())});
  }
  for (const ir::Value output : optimised_.outputs())
    plan->output_sizes.push_back(concrete(output.meta().sizes, sizes));
  return plan;
}

}  // namespace heddle::engine
