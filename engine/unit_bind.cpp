// What a unit makes of concrete sizes: addresses, steps, plans of nested units.
#include <algorithm>
#include <atomic>
#include <set>

#include "base/check.h"
#include "engine/batch_choice.h"
#include "engine/batch_runs.h"
#include "engine/chains.h"
#include "engine/cuda_unit.h"
#include "engine/custom_step.h"
#include "engine/failure.h"
#include "engine/late_plans.h"
#include "engine/plan_check.h"
#include "engine/region_run.h"
#include "engine/unit.h"
#include "heddle/error.h"
#include "jit/lower/region.h"

namespace heddle::engine {

using base::SymbolValues;
using ir::BufferId;
using ir::PlanBuffer;

BoundSteps::BoundSteps() = default;
BoundSteps::~BoundSteps() = default;

namespace {

/// Without plans nested in it, which `found` gets.
std::size_t own_bytes(const BoundSteps& plan, std::vector<const BoundSteps*>& found) {
  const auto of = [](const auto& list) { return list.size() * sizeof(list[0]); };
  std::size_t bytes = sizeof plan + of(plan.table) + of(plan.table_start) + of(plan.step_sizes) +
                      of(plan.steps) + of(plan.stages) + of(plan.cuda) + of(plan.memory.offsets);
  for (const auto& sizes : plan.step_sizes) bytes += of(sizes);
  for (const auto& call : plan.library)
    if (call != nullptr) bytes += static_cast<std::size_t>(call->held_bytes());
  for (const auto& region : plan.regions)
    if (region != nullptr)
      for (const auto& nested : region->plans) found.push_back(nested.get());
  for (const auto& batch : plan.batches) {
    bytes += of(batch->moves);
    found.push_back(batch->steps.get());
  }
  return bytes;
}

}  // namespace

/// Plans that several calls share count once.
std::int64_t BoundSteps::held_bytes() const {
  std::vector<const BoundSteps*> plans{this};
  std::set<const BoundSteps*> seen;
  std::size_t bytes = 0;
  while (!plans.empty()) {
    const BoundSteps* plan = plans.back();
    plans.pop_back();
    if (seen.insert(plan).second) bytes += own_bytes(*plan, plans);
  }
  return static_cast<std::int64_t>(bytes);
}

namespace {

/// Scalar operations of a step that has iterations. Those of a piece that has none, of an operand without elements that
/// is joined to others, may divide by its size of 0: the iterations are counted then.
std::int64_t estimated_work(const base::ExprTable::Values& values, std::uint32_t work,
                            std::int64_t iterations) {
  try {
    return values[work];
  } catch (const ShapeError&) {
    return iterations;
  }
}

void run_kernel(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
                std::int32_t* status) {
  const auto* kernel = static_cast<const jit::CpuKernel*>(step.code);
  auto* scratch = static_cast<char*>(step.scratch) + worker * step.scratch_stride;
  kernel->entry(step.buffers, step.sizes, begin, end, scratch, status);
  if (std::atomic_ref(*status).load(std::memory_order_relaxed) > 0) [[unlikely]]
    static_cast<Failure*>(step.request)->note(jit::take_index_report());
}

void run_library(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
                 std::int32_t*) {
  const auto* call = static_cast<const jit::BoundLibraryCall*>(step.code);
  call->run(step.buffers, begin, end,
            static_cast<char*>(step.scratch) + worker * step.scratch_stride);
}

/// Whether a kernel reads operand `position` from any address: nests do, and what a nested plan captures is a constant
/// of its own.
bool reads_any_address(const jit::ProgramKernel& kernel, std::size_t position) {
  if (kernel.nest != nullptr) return true;
  if (kernel.nested == nullptr) return false;
  const jit::NestedCall& call = *kernel.nested;
  return position >= call.first_operand() + call.first_captured() &&
         position < call.first_operand() + call.operands;
}

/// What operand `k` of a call is to it: a buffer may be seen through a reshape.
const ir::TensorMeta& seen_by(const jit::LibraryCall& call, std::size_t k) {
  return k < call.inputs.size() ? call.inputs[k] : call.outputs[k - call.inputs.size()];
}

std::int64_t argument_bytes(const jit::Program& program, std::uint32_t position,
                            const SymbolValues& sizes) {
  for (const PlanBuffer& buffer : program.record.buffers)
    if (buffer.role == PlanBuffer::Role::Input && buffer.position == position)
      return buffer.bytes.evaluate(sizes);
  return 0;
}

}  // namespace

namespace {

/// The stages of steps [begin, end); those of steps that are repeated are one.
void add_stages(std::span<const scheduler::Stage> stages, ir::StepId begin, ir::StepId end,
                BoundSteps& plan) {
  const auto batch_of = [&](std::uint32_t step) -> const BoundBatch* {
    for (const auto& batch : plan.batches)
      if (step >= batch->first && step < batch->first + batch->steps->steps.size())
        return batch.get();
    return nullptr;
  };
  for (const scheduler::Stage& stage : stages) {
    if (stage.empty() || stage.front() < begin || stage.front() >= end) continue;
    const std::uint32_t first = stage.front() - begin;
    const BoundBatch* batch = batch_of(first);
    if (batch == nullptr)
      plan.stages.push_back({first, static_cast<std::uint32_t>(stage.size())});
    else if (batch->first == first)
      plan.stages.push_back({first, static_cast<std::uint32_t>(batch->steps->steps.size())});
  }
}

}  // namespace

SymbolValues nested_sizes(const jit::NestedCall::Region& region, const SymbolValues& sizes) {
  SymbolValues values = sizes;
  std::erase_if(values, [](const auto& entry) { return jit::is_workspace(entry.first); });
  for (const auto& [symbol, expr] : region.sizes) values[symbol] = expr.evaluate(sizes);
  return values;
}

void Unit::make_recipes() {
  base::ExprTable::Builder expressions;
  for (const PlanBuffer& buffer : schedule_.record.buffers)
    bytes_values_.push_back(expressions.add(buffer.bytes));
  const auto steps = static_cast<ir::StepId>(schedule_.record.steps.size());
  for (ir::StepId step = 0; step < steps; ++step) add_recipe(step, expressions);
  recipes_.push_back({.first_size = static_cast<std::uint32_t>(size_values_.size()),
                      .first_address = static_cast<std::uint32_t>(addresses_.size()),
                      .first_passed_on = static_cast<std::uint32_t>(passed_on_.size())});
  expressions_ = expressions.finish();
}

void Unit::add_recipe(ir::StepId step, base::ExprTable::Builder& expressions) {
  const ir::PlanStep& planned = schedule_.record.steps[step];
  const jit::Launch& launch = program_.launches[schedule_.given[step]];
  const jit::ProgramKernel& kernel = program_.kernels[planned.kernel];
  StepRecipe recipe{.kernel = planned.kernel,
                    .first_size = static_cast<std::uint32_t>(size_values_.size()),
                    .first_address = static_cast<std::uint32_t>(addresses_.size()),
                    .first_passed_on = static_cast<std::uint32_t>(passed_on_.size()),
                    .work = expressions.add(planned.work)};
  for (const ir::SymExpr& size : launch.sizes) size_values_.push_back(expressions.add(size));
  if (kernel.library != nullptr)
    for (std::size_t k = 0; k < launch.buffers.size(); ++k)
      for (const ir::SymExpr& size : seen_by(*kernel.library, k).sizes)
        size_values_.push_back(expressions.add(size));
  const auto sizes = std::span<const std::uint32_t>(size_values_).subspan(recipe.first_size);
  if (kernel.nest != nullptr) recipe.extent = expressions.add(kernel.nest->parallel_extent, sizes);
  if (kernel.nest != nullptr && cuda_ == nullptr) {
    recipe.code = kernels_[planned.kernel].get();
    recipe.scratch_bytes = expressions.add(kernels_[planned.kernel]->scratch_bytes, sizes);
  }
  for (std::size_t k = 0; k < launch.buffers.size(); ++k)
    addresses_.push_back(address_recipe(launch.buffers[k], reads_any_address(kernel, k)));
  add_passed_on(step);
  recipes_.push_back(recipe);
}

void Unit::add_passed_on(ir::StepId step) {
  const auto& steps = schedule_.record.steps;
  if (step + 1 == steps.size()) return;
  const auto roots = planner_->roots();
  for (const BufferId written : steps[step].writes)
    if (std::ranges::any_of(steps[step + 1].reads,
                            [&](BufferId read) { return roots[read] == roots[written]; }))
      passed_on_.push_back(written);
}

/// @param any_address  its reader loads from any address
Unit::AddressRecipe Unit::address_recipe(BufferId buffer, bool any_address) const {
  const BufferId root = planner_->roots()[buffer];
  const PlanBuffer& owner = schedule_.record.buffers[root];
  switch (owner.role) {
    case PlanBuffer::Role::Input:
      return {{AddressSource::Kind::Input, 0, owner.position, nullptr}, root};
    case PlanBuffer::Role::Output:
      return {{AddressSource::Kind::Output, 0, owner.position, nullptr}, root};
    case PlanBuffer::Role::Parameter:
    case PlanBuffer::Role::Constant: {
      AddressSource source{AddressSource::Kind::Fixed};
      if (cuda_ != nullptr)
        source.address = cuda_->fixed_address(root);
      else if (any_address)
        source.address = const_cast<void*>(fixed_[root].unaligned_data());
      return {source, root, cuda_ == nullptr && !any_address};
    }
    case PlanBuffer::Role::Intermediate:
    case PlanBuffer::Role::Workspace:
      break;
  }
  return {{AddressSource::Kind::Arena}, root};
}

AddressSource Unit::source_of(const AddressRecipe& recipe, const BoundSteps& plan) const {
  AddressSource source = recipe.source;
  if (recipe.aligned) source.address = const_cast<void*>(fixed_[recipe.root].data());
  if (source.kind != AddressSource::Kind::Arena) return source;
  const std::int64_t offset = plan.memory.offsets[recipe.root];
  const auto& begins = plan.arena_begins;
  const auto arena = std::upper_bound(begins.begin(), begins.end(), offset) - begins.begin() - 1;
  source.position = static_cast<std::uint32_t>(arena);
  source.offset = offset - begins[source.position];
  return source;
}

std::vector<jit::LibraryOperand> Unit::library_operands(
    ir::StepId step, const base::ExprTable::Values& values) const {
  const jit::Launch& launch = program_.launches[schedule_.given[step]];
  const jit::LibraryCall& call = *program_.kernels[schedule_.record.steps[step].kernel].library;
  std::vector<jit::LibraryOperand> operands;
  operands.reserve(launch.buffers.size());
  std::size_t next = recipes_[step].first_size + launch.sizes.size();
  for (std::size_t k = 0; k < launch.buffers.size(); ++k) {
    const ir::Literal& fixed = fixed_[planner_->roots()[launch.buffers[k]]];
    std::vector<std::int64_t> sizes(seen_by(call, k).sizes.size());
    for (std::int64_t& size : sizes) size = values[size_values_[next++]];
    operands.push_back({std::move(sizes), fixed.data(), fixed.identity()});
  }
  return operands;
}

const jit::Footprints& Unit::footprints(ir::StepId step) const {
  const jit::Nest* nest = program_.kernels[recipes_[step].kernel].nest.get();
  std::vector<bool> fixed;
  for (std::uint32_t k = recipes_[step].first_address; k < recipes_[step + 1].first_address; ++k)
    fixed.push_back(addresses_[k].source.kind == AddressSource::Kind::Fixed);
  const std::lock_guard lock(footprints_mutex_);
  return footprints_.try_emplace({nest, fixed}, *nest, fixed).first->second;
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
  region->counted = call.counted;
  region->call = &call;
  std::int64_t arena = 0;
  for (std::size_t k = 0; k < call.regions.size(); ++k) {
    region->plans.push_back(
        nested_[kernel][k]->bind_nested(nested_sizes(call.regions[k], sizes), threads, known));
    arena = std::max(arena, region->plans.back()->memory.peak_bytes);
  }
  const jit::Program& body = *call.regions.back().program;
  const SymbolValues& body_sizes = region->plans.back()->sizes;
  std::int64_t end = memory::aligned(arena);
  for (std::uint32_t k = 0; k < call.carried; ++k) {
    region->carried_bytes.push_back(argument_bytes(body, k, body_sizes));
    region->spare_offsets.push_back(end);
    if (!call.is_updated(k)) end += memory::aligned(region->carried_bytes.back());
  }
  for (std::uint32_t k = call.carried; k < call.carried + call.scanned; ++k)
    region->slice_bytes.push_back(argument_bytes(body, k, body_sizes));
  for (std::uint32_t k = call.carried; call.kind == ir::RegionKind::Scan && k < call.results; ++k)
    region->element_bytes.push_back(
        body.record.buffers[body.outputs[call.output_of(k)]].bytes.evaluate(body_sizes));
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

scheduler::BoundStep Unit::bind_step(ir::StepId step, const base::ExprTable::Values& values,
                                     BoundSteps& plan) const {
  const StepRecipe& recipe = recipes_[step];
  const StepRecipe& next = recipes_[step + 1];
  const std::size_t at = step - plan.first_step;
  scheduler::BoundStep bound{};
  std::vector<std::int64_t>& numbers = plan.step_sizes[at];
  if (numbers.empty()) {  // bind_launch() was not there
    numbers.reserve(next.first_size - recipe.first_size);
    for (std::uint32_t k = recipe.first_size; k < next.first_size; ++k)
      numbers.push_back(values[size_values_[k]]);
  }
  if (recipe.code != nullptr) {
    bound.run = run_kernel;
    bound.is_reversible = true;
    bound.code = recipe.code;
    bound.extent = values[recipe.extent];
    bound.scratch_bytes = values[recipe.scratch_bytes];
  } else {
    bind_other(recipe, values, at, bound, plan);
  }
  if (bound.extent > 0) bound.work = estimated_work(values, recipe.work, bound.extent);
  bound.sizes = numbers.data();
  return bound;
}

void Unit::bind_addresses(ir::StepId step, BoundSteps& plan) const {
  plan.table_start.push_back(static_cast<std::uint32_t>(plan.table.size()));
  for (std::uint32_t k = recipes_[step].first_address; k < recipes_[step + 1].first_address; ++k)
    bind_address(source_of(addresses_[k], plan), plan);
}

/// A step that is no nest on the CPU.
void Unit::bind_other(const StepRecipe& recipe, const base::ExprTable::Values& values,
                      std::size_t at, scheduler::BoundStep& bound, BoundSteps& plan) const {
  const jit::ProgramKernel& kernel = program_.kernels[recipe.kernel];
  if (kernel.nest != nullptr) {
    bound.extent = values[recipe.extent];
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
    bound.run = run_library;  // bind_library() was there
    bound.code = plan.library[at].get();
    bound.extent = plan.library[at]->extent();
    bound.scratch_bytes = plan.library[at]->scratch_bytes();
  }
}

/// The arena of the phase, after those of the phases before it.
void Unit::bind_memory(BoundSteps& plan) const {
  // What repeated steps use lies in the first arena.
  const std::span<const memory::Repeat> repeats = plan.repeats;
  memory::MemoryPlan own =
      planner_->bind(plan.sizes, plan.phase, plan.phase == 0 ? repeats : repeats.first(0));
  const std::int64_t begin = memory::aligned(plan.memory.peak_bytes);
  plan.arena_begins.push_back(begin);
  plan.memory.peak_bytes = begin + own.peak_bytes;
  plan.memory.lower_bound_bytes = std::max(plan.memory.lower_bound_bytes, own.lower_bound_bytes);
  plan.memory.offsets.resize(own.offsets.size(), memory::kNotInArena);
  for (std::size_t b = 0; b < own.offsets.size(); ++b)
    if (own.offsets[b] != memory::kNotInArena) plan.memory.offsets[b] = begin + own.offsets[b];
  if (plan.phase == 0) plan.memory.once = std::move(own.once);
}

/// What the step that begins the next phase reads, where it is told by now.
void Unit::bind_query(BoundSteps& plan) const {
  if (phases_.is_last(plan.phase)) return;
  plan.late = std::make_unique<LatePlans>();
  const ir::StepId step = phases_.begin(plan.phase + 1);
  const ir::PlanStep& planned = schedule_.record.steps[step];
  plan.query = static_cast<std::uint32_t>(plan.table.size());
  for (const BufferId buffer : program_.launches[schedule_.given[step]].buffers) {
    const bool read = std::ranges::find(planned.reads, buffer) != planned.reads.end();
    bind_address(read ? source_of(address_recipe(buffer, false), plan)
                      : AddressSource{AddressSource::Kind::Fixed},
                 plan);
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

/// What keeps the phase from running: sizes that it is the first to know.
std::optional<Error::Parts> Unit::refused(const BoundSteps& plan) const {
  for (const ir::LateCheck& check : program_.late_checks)
    if (phases_.known_in(ir::Dims{check.holds.left, check.holds.right}) == plan.phase)
      if (auto why = ir::refusal(check, plan.sizes)) return why;
  return std::nullopt;
}

/// Makes the library calls of steps [begin, end), which are run so many times, each by itself: a library may take milliseconds for one.
void Unit::bind_library(ir::StepId begin, ir::StepId end, const base::ExprTable::Values& values,
                        std::int64_t times, BoundSteps& plan) const {
  std::vector<ir::StepId> calls;
  for (ir::StepId step = begin; step < end; ++step)
    if (program_.kernels[schedule_.record.steps[step].kernel].library != nullptr)
      calls.push_back(step);
  compiler_->for_each(
      calls.size(),
      [&](std::size_t k) {
        const ir::StepId step = calls[k];
        const jit::ProgramKernel& kernel = program_.kernels[schedule_.record.steps[step].kernel];
        plan.library[step - plan.first_step] =
            jit::bind_library_call(*kernel.library, library_operands(step, values), plan.threads,
                                   {.verdicts = verdicts_,
                                    .constants = constants_,
                                    .facts = &fixed_facts_,
                                    .times = times,
                                    .bytes = fixed_bytes_});
      },
      true);
}

/// Has the library make its code for steps as the stages run them. Workers share what one thread would run whole.
void Unit::make_library_ready(const BoundSteps& plan) const {
  struct Use {
    bool whole = false;
    bool in_parts = false;
  };
  std::map<std::uint32_t, Use> uses;
  for (const scheduler::BoundStage& stage : plan.stages)
    for (std::uint32_t step = stage.first; step < stage.first + stage.count; ++step) {
      if (plan.library[step] == nullptr) continue;
      uses[step].whole |= !stage.is_partial();
      uses[step].in_parts |= stage.is_partial() || plan.threads > 1;
    }
  const std::vector<std::pair<std::uint32_t, Use>> calls(uses.begin(), uses.end());
  compiler_->for_each(
      calls.size(),
      [&](std::size_t k) {
        const auto& [step, use] = calls[k];
        plan.library[step]->make_ready(use.whole, use.in_parts);
      },
      true);
}

/// Steps of each Repeat, of which the first one runs them all, and those between.
void Unit::bind_steps(const base::ExprTable::Values& numbers, BoundSteps& plan) const {
  const ir::StepId end = phases_.begin(plan.phase + 1);
  ir::StepId step = plan.first_step;
  const auto bind_until = [&](ir::StepId last) {
    bind_library(step, last, numbers, 1, plan);
    for (; step < last; ++step) {
      plan.steps.push_back(bind_step(step, numbers, plan));
      bind_addresses(step, plan);
    }
  };
  for (const memory::Repeat& repeat : plan.repeats) {
    if (repeat.first_step < plan.first_step || repeat.first_step >= end) continue;
    bind_until(repeat.first_step);
    bind_batch(repeat, plan);
    step = repeat.last_step + 1;
  }
  bind_until(end);
  for (const scheduler::BoundStep& bound : plan.steps)
    plan.scratch_bytes = std::max(plan.scratch_bytes, bound.scratch_bytes);
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
  const base::ExprTable::Values numbers = values(plan.sizes);
  if (plan.phase == 0 && batch_choice_ != nullptr)
    plan.repeats =
        batch_choice_->repeats(plan, [&](BufferId b) { return buffer_bytes(b, numbers); });
  bind_memory(plan);
  if (check_plans_ && phases_.is_last(plan.phase)) check_steps(*this, plan);
  plan.steps.reserve(count);
  plan.table_start.reserve(count);
  plan.table.reserve(recipes_[end].first_address - recipes_[begin].first_address);
  bind_steps(numbers, plan);
  bind_query(plan);
  add_stages(schedule_.stages, begin, end, plan);
  bind_releases(plan);
  if (cuda_ == nullptr && plan.releases.empty() && cache_bytes_ != 0) {
    tile_chains(plan, cache_bytes_);
    if (check_plans_) check_chains(plan);
  }
  if (check_plans_) check_batches(plan);
  make_library_ready(plan);
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
  plan.repeats = before.repeats;
  NestedPlans known;
  bind_phase(plan, known);
}

}  // namespace heddle::engine
