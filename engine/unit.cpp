#include "engine/unit.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "base/check.h"
#include "engine/capture_traits.h"
#include "engine/cuda_unit.h"
#include "engine/custom_step.h"
#include "engine/fold.h"
#include "engine/plan_check.h"
#include "engine/region_run.h"
#include "heddle/error.h"
#include "jit/lower/region.h"

namespace heddle::engine {

using base::SymbolValues;
using ir::BufferId;
using ir::PlanBuffer;

BoundSteps::BoundSteps() = default;
BoundSteps::~BoundSteps() = default;

namespace {

/// Scalar operations of a step that has iterations. Those of a piece that has none, of an operand without elements that
/// is joined to others, may divide by its size of 0: the iterations are counted then.
std::int64_t estimated_work(const ir::SymExpr& work, const SymbolValues& sizes,
                            std::int64_t iterations) {
  try {
    return work.evaluate(sizes);
  } catch (const ShapeError&) {
    return iterations;
  }
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + memory::kAlignment - 1) / memory::kAlignment * memory::kAlignment;
}

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

/// The buffer of argument `position`.
BufferId argument_buffer(const jit::Program& program, std::uint32_t position) {
  const auto& buffers = program.record.buffers;
  for (BufferId b = 0; b < buffers.size(); ++b)
    if (buffers[b].role == PlanBuffer::Role::Input && buffers[b].position == position) return b;
  HD_CHECK(false, "a nested program lacks an argument");
  return 0;
}

std::int64_t argument_bytes(const jit::Program& program, std::uint32_t position,
                            const SymbolValues& sizes) {
  for (const PlanBuffer& buffer : program.record.buffers)
    if (buffer.role == PlanBuffer::Role::Input && buffer.position == position)
      return buffer.bytes.evaluate(sizes);
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

SymbolValues nested_sizes(const jit::NestedCall::Region& region, const SymbolValues& sizes) {
  SymbolValues values = sizes;
  std::erase_if(values, [](const auto& entry) { return jit::is_workspace(entry.first); });
  for (const auto& [symbol, expr] : region.sizes) values[symbol] = expr.evaluate(sizes);
  return values;
}

Unit::Unit(jit::Program program, std::vector<ir::Literal> fixed, const BuildOptions& options)
    : program_(std::move(program)), fixed_(std::move(fixed)) {
  check_plans_ = wants_check(options.engine);
  computed_sizes_ = ir::computed_sizes(program_.graph);
  let_outputs_own_their_bytes(program_.record);
  FixedSteps fixed_steps(program_, fixed_, *options.compiler);
  const PendingKernels pending =
      options.cuda == nullptr ? submit(fixed_steps.folded(), options) : PendingKernels();
  folded_steps_ = fixed_steps.run();
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
  cuda_->upload(program_, fixed_, planner_->roots());
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
  const std::size_t first = call.kind == ir::RegionKind::Cond ? 1 : 0;
  for (const jit::NestedCall::Region& region : call.regions) {
    NestedKey key{region.program, {}};
    std::vector<ir::Literal> values;
    for (std::uint32_t k = call.carried + call.scanned; k < call.operands; ++k) {
      const BufferId root = roots[launch.buffers[first + k]];
      const PlanBuffer::Role role = program_.record.buffers[root].role;
      if (role != PlanBuffer::Role::Parameter && role != PlanBuffer::Role::Constant) continue;
      key.fixed.emplace_back(k, fixed_[root].data());
      values.push_back(fixed_[root]);
    }
    nested_[kernel].push_back(nested_unit(std::move(key), values, options));
  }
}

std::shared_ptr<const Unit> Unit::nested_unit(NestedKey key, const std::vector<ir::Literal>& values,
                                              const BuildOptions& options) {
  std::shared_ptr<const Unit>& unit = (*options.nested)[key];
  if (unit != nullptr) return unit;
  jit::Program program = *key.program;
  for (std::size_t k = 0; k < values.size(); ++k)
    fix_argument(program, key.fixed[k].first, values[k]);
  std::vector<ir::Literal> fixed = fixed_buffers(program, ir::Graph());
  BuildOptions inside = options;
  inside.graphs = false;  // nested plans are queued step by step
  return unit = std::make_shared<const Unit>(std::move(program), std::move(fixed), inside);
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

AddressSource Unit::source_of(BufferId buffer, const BoundSteps& plan) const {
  const BufferId root = planner_->roots()[buffer];
  const PlanBuffer& owner = schedule_.record.buffers[root];
  switch (owner.role) {
    case PlanBuffer::Role::Input:
      return {AddressSource::Kind::Input, 0, owner.position, nullptr};
    case PlanBuffer::Role::Output:
      return {AddressSource::Kind::Output, 0, owner.position, nullptr};
    case PlanBuffer::Role::Parameter:
    case PlanBuffer::Role::Constant:
      if (cuda_ != nullptr) return {AddressSource::Kind::Fixed, 0, 0, cuda_->fixed_address(root)};
      return {AddressSource::Kind::Fixed, 0, 0, const_cast<void*>(fixed_[root].data())};
    case PlanBuffer::Role::Intermediate:
    case PlanBuffer::Role::Workspace:
      break;
  }
  const std::int64_t offset = plan.memory.offsets[root];
  const auto& begins = plan.arena_begins;
  const auto arena = std::upper_bound(begins.begin(), begins.end(), offset) - begins.begin() - 1;
  const auto phase = static_cast<std::uint32_t>(arena);
  return {AddressSource::Kind::Arena, offset - begins[phase], phase, nullptr};
}

/// Sizes are those that the call sees: a buffer may be seen through a reshape.
std::vector<jit::LibraryOperand> Unit::library_operands(const jit::LibraryCall& call,
                                                        const jit::Launch& launch,
                                                        const SymbolValues& sizes) const {
  std::vector<jit::LibraryOperand> operands;
  for (std::size_t k = 0; k < launch.buffers.size(); ++k) {
    const ir::TensorMeta& seen =
        k < call.inputs.size() ? call.inputs[k] : call.outputs[k - call.inputs.size()];
    const ir::Literal& fixed = fixed_[planner_->roots()[launch.buffers[k]]];
    operands.push_back({concrete(seen.sizes, sizes), fixed.data()});
  }
  return operands;
}

std::unique_ptr<BoundRegion> Unit::bind_region(const jit::NestedCall& call, std::uint32_t kernel,
                                               const SymbolValues& sizes, int threads,
                                               NestedPlans& known) const {
  auto region = std::make_unique<BoundRegion>();
  region->kind = call.kind;
  region->operands = call.operands;
  region->carried = call.carried;
  region->scanned = call.scanned;
  region->results = call.results;
  region->length = call.kind == ir::RegionKind::Scan ? call.length.evaluate(sizes) : 0;
  region->reverse = call.reverse;
  std::int64_t arena = 0;
  for (std::size_t k = 0; k < call.regions.size(); ++k) {
    region->plans.push_back(
        nested_[kernel][k]->bind_nested(nested_sizes(call.regions[k], sizes), threads, known));
    arena = std::max(arena, region->plans.back()->memory.peak_bytes);
  }
  const jit::Program& body = *call.regions.back().program;
  const SymbolValues& body_sizes = region->plans.back()->sizes;
  std::int64_t end = aligned(arena);
  for (std::uint32_t k = 0; k < call.carried; ++k) {
    region->carried_bytes.push_back(argument_bytes(body, k, body_sizes));
    region->spare_offsets.push_back(end);
    end += aligned(region->carried_bytes.back());
  }
  for (std::uint32_t k = call.carried; k < call.carried + call.scanned; ++k)
    region->slice_bytes.push_back(argument_bytes(body, k, body_sizes));
  for (std::uint32_t k = call.carried; call.kind == ir::RegionKind::Scan && k < call.results; ++k)
    region->element_bytes.push_back(
        body.record.buffers[body.outputs[k]].bytes.evaluate(body_sizes));
  region->condition_offset = end;
  region->workspace_bytes =
      end + (call.kind == ir::RegionKind::While ? memory::kAlignment : std::int64_t{0});
  return region;
}

std::shared_ptr<const BoundSteps> Unit::bind_nested(const SymbolValues& sizes, int threads,
                                                    NestedPlans& known) const {
  const std::pair key(this, sizes);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  auto plan = std::make_shared<BoundSteps>();
  plan->sizes = sizes;
  plan->threads = threads;
  bind_phase(*plan, known);
  return known[key] = std::move(plan);
}

void Unit::bind_address(const AddressSource& source, BoundSteps& plan) const {
  const auto entry = static_cast<std::uint32_t>(plan.table.size());
  plan.table.push_back(source);
  if (source.kind == AddressSource::Kind::Input)
    plan.input_slots.emplace_back(entry, source.position);
  if (source.kind == AddressSource::Kind::Output)
    plan.output_slots.emplace_back(entry, source.position);
}

scheduler::BoundStep Unit::bind_step(ir::StepId step, BoundSteps& plan) const {
  const ir::PlanStep& planned = schedule_.record.steps[step];
  const jit::Launch& launch = program_.launches[schedule_.given[step]];
  const jit::ProgramKernel& kernel = program_.kernels[planned.kernel];
  const std::size_t at = step - plan.first_step;
  scheduler::BoundStep bound{};
  std::vector<std::int64_t>& numbers = plan.step_sizes[at];
  const bool launches = kernel.nest != nullptr && cuda_ != nullptr;  // bind_launch() was there
  for (const ir::SymExpr& size : launch.sizes)
    if (!launches) numbers.push_back(size.evaluate(plan.sizes));
  if (launches) {
    bound.extent = kernel.nest->parallel_extent.evaluate_sizes(numbers);
  } else if (kernel.nest != nullptr) {
    bound.run = run_kernel;
    bound.code = kernels_[planned.kernel].get();
    bound.extent = kernel.nest->parallel_extent.evaluate_sizes(numbers);
    bound.scratch_bytes = kernels_[planned.kernel]->scratch_bytes.evaluate_sizes(numbers);
  } else if (kernel.custom != nullptr && cuda_ != nullptr) {
    bound.code = plan.custom[at].get();
    bound.extent = plan.custom[at]->extent();
  } else if (kernel.custom != nullptr) {
    plan.custom[at] =
        std::make_unique<jit::BoundCustomCall>(*kernel.custom, plan.sizes, plan.threads);
    bound.run = run_custom;
    bound.code = plan.custom[at].get();
    bound.extent = plan.custom[at]->extent();
    bound.scratch_bytes = plan.custom[at]->scratch_bytes();
  } else if (kernel.nested != nullptr) {
    bound.run_alone = run_region;
    bound.code = plan.regions[at].get();
    for (const auto& nested : plan.regions[at]->plans)
      bound.scratch_bytes = std::max(bound.scratch_bytes, nested->scratch_bytes);
  } else {
    plan.library[at] = jit::bind_library_call(
        *kernel.library, library_operands(*kernel.library, launch, plan.sizes), plan.threads);
    bound.run = run_library;
    bound.code = plan.library[at].get();
    bound.extent = plan.library[at]->extent();
    bound.scratch_bytes = plan.library[at]->scratch_bytes();
  }
  if (bound.extent > 0) bound.work = estimated_work(planned.work, plan.sizes, bound.extent);
  bound.sizes = numbers.data();
  plan.table_start.push_back(static_cast<std::uint32_t>(plan.table.size()));
  for (const BufferId buffer : launch.buffers) bind_address(source_of(buffer, plan), plan);
  return bound;
}

/// The arena of the phase, after those of the phases before it.
void Unit::bind_memory(BoundSteps& plan) const {
  memory::MemoryPlan own = planner_->bind(plan.sizes, plan.phase);
  const std::int64_t begin = aligned(plan.memory.peak_bytes);
  plan.arena_begins.push_back(begin);
  plan.memory.peak_bytes = begin + own.peak_bytes;
  plan.memory.lower_bound_bytes = std::max(plan.memory.lower_bound_bytes, own.lower_bound_bytes);
  plan.memory.offsets.resize(own.offsets.size(), memory::kNotInArena);
  for (std::size_t b = 0; b < own.offsets.size(); ++b)
    if (own.offsets[b] != memory::kNotInArena) plan.memory.offsets[b] = begin + own.offsets[b];
}

/// What the step that begins the next phase reads, where it is told by now.
void Unit::bind_query(BoundSteps& plan) const {
  if (phases_.is_last(plan.phase)) return;
  const ir::StepId step = phases_.begin(plan.phase + 1);
  const ir::PlanStep& planned = schedule_.record.steps[step];
  plan.query = static_cast<std::uint32_t>(plan.table.size());
  for (const BufferId buffer : program_.launches[schedule_.given[step]].buffers) {
    const bool read = std::ranges::find(planned.reads, buffer) != planned.reads.end();
    bind_address(read ? source_of(buffer, plan) : AddressSource{AddressSource::Kind::Fixed}, plan);
  }
}

/// How a step is launched on CUDA, and how much memory its blocks share.
void Unit::bind_launch(ir::StepId step, BoundSteps& plan) const {
  const std::uint32_t kernel = schedule_.record.steps[step].kernel;
  const std::uint32_t given = schedule_.given[step];
  std::vector<std::int64_t>& numbers = plan.step_sizes[step - plan.first_step];
  for (const ir::SymExpr& size : program_.launches[given].sizes)
    numbers.push_back(size.evaluate(plan.sizes));
  std::int64_t scratch_bytes = 0;
  plan.cuda[step - plan.first_step] = cuda_->bind(kernel, numbers, scratch_bytes);
  if (cuda_->shares_tiles(kernel)) plan.sizes[shares_workspace(given)] = scratch_bytes;
}

/// What keeps the phase from running: a size that it is the first to know.
std::optional<Error::Parts> Unit::refused(const BoundSteps& plan) const {
  for (const ir::ComputedSize& computed : computed_sizes_)
    if (phases_.known_in(computed.size) == plan.phase)
      if (auto why = ir::refusal(computed, plan.sizes)) return why;
  return std::nullopt;
}

/// Nested plans, and the custom ops and launches of a device first: their arenas and workspaces are buffers of this one.
void Unit::bind_phase(BoundSteps& plan, NestedPlans& known) const {
  const ir::StepId begin = phases_.begin(plan.phase);
  const ir::StepId end = phases_.begin(plan.phase + 1);
  const std::size_t count = end - begin;
  plan.unit = this;
  plan.first_step = begin;
  plan.refusal = refused(plan);
  if (plan.refusal) return;
  plan.step_sizes.resize(count);
  plan.library.resize(count);
  plan.custom.resize(count);
  plan.regions.resize(count);
  if (cuda_ != nullptr) {
    plan.cuda.resize(count);
    plan.streams = &cuda_->streams();
    plan.graphs = &cuda_->graphs();
  }
  for (ir::StepId step = begin; step < end; ++step) {
    const std::uint32_t kernel = schedule_.record.steps[step].kernel;
    if (cuda_ != nullptr && program_.kernels[kernel].nest != nullptr) bind_launch(step, plan);
    if (cuda_ != nullptr && program_.kernels[kernel].custom != nullptr) {
      auto& custom = plan.custom[step - begin];
      custom =
          std::make_unique<jit::BoundCustomCall>(*program_.kernels[kernel].custom, plan.sizes, 1);
      plan.sizes[custom_workspace(kernel)] = custom->workspace_bytes();
    }
    const jit::NestedCall* call = program_.kernels[kernel].nested.get();
    if (call == nullptr) continue;
    plan.regions[step - begin] = bind_region(*call, kernel, plan.sizes, plan.threads, known);
    plan.sizes[call->workspace] = plan.regions[step - begin]->workspace_bytes;
  }
  bind_memory(plan);
  if (check_plans_ && phases_.is_last(plan.phase)) check_steps(*this, plan);
  for (ir::StepId step = begin; step < end; ++step) {
    plan.steps.push_back(bind_step(step, plan));
    plan.scratch_bytes = std::max(plan.scratch_bytes, plan.steps.back().scratch_bytes);
  }
  bind_query(plan);
  for (const scheduler::Stage& stage : schedule_.stages)
    if (!stage.empty() && stage.front() >= begin && stage.front() < end)
      plan.stages.push_back({stage.front() - begin, static_cast<std::uint32_t>(stage.size())});
  bind_releases(plan);
}

void Unit::bind(const SymbolValues& sizes, int threads, BoundSteps& plan) const {
  plan.sizes = sizes;
  plan.threads = threads;
  NestedPlans known;
  bind_phase(plan, known);
}

void Unit::bind_next(const BoundSteps& before, const SymbolValues& sizes, BoundSteps& plan) const {
  plan.sizes = sizes;
  plan.threads = before.threads;
  plan.phase = before.phase + 1;
  plan.memory = before.memory;
  plan.arena_begins = before.arena_begins;
  NestedPlans known;
  bind_phase(plan, known);
}

}  // namespace heddle::engine
